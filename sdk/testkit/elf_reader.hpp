// ElfReader: what a shared library exports and needs, read from the file without loading it.
#pragma once

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <vector>

namespace pliant::testkit {

/// The dynamic section of a 64-bit ELF file. Throws std::runtime_error when the file is not one.
class ElfReader {
 public:
  explicit ElfReader(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    const auto size = static_cast<std::streamoff>(in.tellg());
    bytes_.resize(size > 0 ? static_cast<size_t>(size) : 0);
    in.seekg(0);
    in.read(bytes_.data(), size > 0 ? size : 0);
    const auto header = at<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
      throw std::runtime_error(file.string() + " is not a 64-bit ELF file");
    }
    for (size_t i = 0; i < header.e_shnum; ++i) {
      sections_.push_back(at<Elf64_Shdr>(header.e_shoff + i * header.e_shentsize));
    }
  }

  /// Names of the symbols that the file defines for others.
  [[nodiscard]] std::vector<std::string> exports() const {
    std::vector<std::string> names;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_DYNSYM) continue;
      for (size_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
        const auto symbol = at<Elf64_Sym>(section.sh_offset + i * sizeof(Elf64_Sym));
        const auto binding = ELF64_ST_BIND(symbol.st_info);
        if (symbol.st_shndx == SHN_UNDEF || binding == STB_LOCAL) continue;
        names.push_back(text(sections_.at(section.sh_link).sh_offset + symbol.st_name));
      }
    }
    return names;
  }

  /// Libraries that the loader brings in with the file.
  [[nodiscard]] std::vector<std::string> needed() const { return dynamic_texts(DT_NEEDED); }

  /// RPATH and RUNPATH entries.
  [[nodiscard]] std::vector<std::string> run_paths() const {
    std::vector<std::string> paths = dynamic_texts(DT_RUNPATH);
    for (std::string& path : dynamic_texts(DT_RPATH)) paths.push_back(std::move(path));
    return paths;
  }

 private:
  template <class T>
  [[nodiscard]] T at(size_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) throw std::runtime_error("the file is cut short");
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  [[nodiscard]] std::string text(size_t offset) const {
    std::string found;
    while (at<char>(offset) != '\0') found.push_back(bytes_[offset++]);
    return found;
  }
  [[nodiscard]] std::vector<std::string> dynamic_texts(Elf64_Sxword tag) const {
    std::vector<std::string> texts;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_DYNAMIC) continue;
      for (size_t i = 0; i < section.sh_size / sizeof(Elf64_Dyn); ++i) {
        const auto entry = at<Elf64_Dyn>(section.sh_offset + i * sizeof(Elf64_Dyn));
        if (entry.d_tag == tag) texts.push_back(text(sections_.at(section.sh_link).sh_offset + entry.d_un.d_val));
      }
    }
    return texts;
  }

  std::vector<char> bytes_;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace pliant::testkit
