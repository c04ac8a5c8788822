// Reads the ELF header and the program headers of a file, and compares what they promise with its size.
#include "plugin/elf_check.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

namespace pliant::plugin {

namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#elif defined(__powerpc64__)
constexpr uint16_t kMachine = EM_PPC64;
#else
constexpr uint16_t kMachine = EM_NONE;  // not checked
#endif

bool read_at(std::ifstream& file, uint64_t offset, void* to, uint64_t size) {
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(static_cast<char*>(to), static_cast<std::streamsize>(size));
  return static_cast<uint64_t>(file.gcount()) == size;
}

/// The last byte that the headers speak of, or 0 when they cannot be read.
uint64_t promised_size(std::ifstream& file, const Elf64_Ehdr& header, uint64_t size) {
  uint64_t end = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const uint64_t bytes = segments.size() * sizeof(Elf64_Phdr);
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > size || bytes > size - header.e_phoff) return 0;
  if (!read_at(file, header.e_phoff, segments.data(), bytes)) return 0;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD) end = std::max<uint64_t>(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

}  // namespace

std::string elf_objection(const std::filesystem::path& path) {
  std::error_code failure;
  const uint64_t size = std::filesystem::file_size(path, failure);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!failure && !file) failure.assign(errno, std::generic_category());
  if (failure) return fmt::format("cannot read it: {}", failure.message());
  if (size == 0) return "it is empty";
  Elf64_Ehdr header{};
  const bool whole = read_at(file, 0, &header, sizeof(header));
  if (size < SELFMAG || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "it is not an ELF shared library";
  if (!whole) return fmt::format("it is truncated: {} bytes are fewer than an ELF header has", size);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return "it is not a 64-bit ELF file";
  if (kMachine != EM_NONE && header.e_machine != kMachine) {
    return fmt::format("it is built for another processor (ELF machine {}, this one is {})", header.e_machine,
                       kMachine);
  }
  if (header.e_type != ET_DYN) return "it is an ELF file, but not a shared library";
  file.clear();
  const uint64_t promised = promised_size(file, header, size);
  if (promised == 0) return "it is truncated: its program headers are missing";
  if (promised > size) return fmt::format("it is truncated: it has {} of {} bytes", size, promised);
  return {};
}

}  // namespace pliant::plugin
