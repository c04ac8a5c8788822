#include "sharded/files/safetensors_parts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/durable_file.hpp"
#include "base/json_depth.hpp"
#include "base/printable.hpp"

namespace pliant::sharded {
namespace {

constexpr int kMostDepth = 16;
constexpr const char* kOnlyPart = "model.safetensors";

Result<std::string> text_of(const std::filesystem::path& file) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "read");
  if (!fd) return failed(std::move(fd));
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return tl::unexpected<Error>(file_error(errno, "read", file));
  if (static_cast<uint64_t>(status.st_size) > kMostSafetensorsHeader) {
    return failed(Status::kDataLoss, fmt::format("{} has {} bytes, but an index has at most {}; it is another file",
                                                 file.string(), status.st_size, kMostSafetensorsHeader));
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t got = 0;
  if (const int error = read_at(fd->get(), text.data(), text.size(), 0, got); error != 0) {
    return tl::unexpected<Error>(file_error(error, "read", file));
  }
  text.resize(got);
  return text;
}

tl::unexpected<Error> no_index(const std::filesystem::path& file, std::string_view reason) {
  return failed(
      Status::kDataLoss,
      fmt::format("{} is not an index of .safetensors files: {}; write or download it again", file.string(), reason));
}

/// A part lies beside its index.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// Names of tensors by the name of the part that has them.
Result<std::map<std::string, std::vector<std::string>>> parts_in(const std::filesystem::path& file) {
  const Result<std::string> text = text_of(file);
  if (!text) return tl::unexpected<Error>(text.error());
  if (nests_deeper(*text, kMostDepth)) return no_index(file, "it nests too deeply");
  const nlohmann::json parsed = nlohmann::json::parse(*text, nullptr, false);
  if (parsed.is_discarded()) return no_index(file, "it is not JSON");
  const auto map = parsed.is_object() ? parsed.find("weight_map") : parsed.end();
  if (map == parsed.end() || !map->is_object()) return no_index(file, "it has no \"weight_map\"");
  std::map<std::string, std::vector<std::string>> parts;
  for (const auto& item : map->items()) {
    const bool is_name = item.value().is_string() && is_plain_name(item.value().get_ref<const std::string&>());
    if (!is_name) {
      return no_index(file, fmt::format("the part of '{}' is not the name of a file beside it", printable(item.key())));
    }
    parts[item.value().get<std::string>()].push_back(item.key());
  }
  return parts;
}

}  // namespace

Result<SafetensorsParts> SafetensorsParts::open(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  std::error_code absent;
  if (std::filesystem::is_directory(path, absent)) {
    file = path / kSafetensorsIndex;
    if (!std::filesystem::exists(file, absent)) file = path / kOnlyPart;
    if (!std::filesystem::exists(file, absent)) {
      return failed(Status::kNotFound,
                    fmt::format("{} contains neither {} nor {}; name the file itself", path.string(), kSafetensorsIndex,
                                kOnlyPart),
                    Origin::kInput);
    }
  }
  SafetensorsParts made;
  Result<> added = file.extension() == ".json" ? made.add_named(file) : made.add_whole(file);
  if (!added) return failed(std::move(added));
  return made;
}

Result<> SafetensorsParts::add_whole(const std::filesystem::path& file) {
  Result<SafetensorsReader> reader = SafetensorsReader::open(file);
  if (!reader) return failed(std::move(reader));
  parts_.push_back(std::move(*reader));
  for (const Tensor& tensor : parts_.back().header().tensors) add(0, tensor);
  return {};
}

Result<> SafetensorsParts::add_named(const std::filesystem::path& index) {
  const auto named = parts_in(index);
  if (!named) return tl::unexpected<Error>(named.error());
  parts_.reserve(named->size());
  for (const auto& [part, tensors] : *named) {
    Result<SafetensorsReader> reader = SafetensorsReader::open(index.parent_path() / part);
    if (!reader) {
      return failed(reader.error().status(), fmt::format("{} (a part of {})", reader.error().message(), index.string()),
                    reader.error().origin());
    }
    parts_.push_back(std::move(*reader));
    std::unordered_map<std::string_view, bool> is_there;
    for (const std::string& name : tensors) is_there[name] = false;
    for (const Tensor& tensor : parts_.back().header().tensors) {
      const auto found = is_there.find(tensor.name);
      if (found == is_there.end()) continue;  // the index has it elsewhere, or not at all
      found->second = true;
      add(parts_.size() - 1, tensor);
    }
    for (const auto& [name, has_come] : is_there) {
      if (has_come) continue;
      return failed(Status::kDataLoss, fmt::format("{} has '{}' in {}, which lacks it; write or download them again",
                                                   index.string(), printable(std::string(name)), part));
    }
  }
  return {};
}

void SafetensorsParts::add(size_t part, const Tensor& tensor) {
  numbers_.emplace(tensor.name, places_.size());
  places_.push_back({part, &tensor});
}

const SafetensorsParts::Place* SafetensorsParts::find(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? nullptr : &places_[found->second];
}

}  // namespace pliant::sharded
