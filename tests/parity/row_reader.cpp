// JSON with Python's extensions by way of nlohmann's SAX interface; lines by way of zlib, which reads plain files too.
#include "parity/row_reader.hpp"

#include <zlib.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace pliant::parity {
namespace {

/// What a bare NaN or Infinity is turned into before the parser sees it; no row begins a string with a zero byte
/// otherwise.
constexpr std::string_view kMark = "\\u0000pliant:";

/// Builds the value and keeps integers that nlohmann would turn into floats.
class Builder {
 public:
  Json root;

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") != std::string::npos) return put(value);
    return put(Json::binary(std::vector<uint8_t>(text.begin(), text.end())));
  }
  bool string(std::string& value) {
    if (value.rfind(std::string("\0pliant:", 8), 0) != 0) return put(value);
    const double infinity = std::numeric_limits<double>::infinity();
    const std::string word = value.substr(8);
    return put(word == "NaN" ? std::nan("") : word == "Infinity" ? infinity : -infinity);
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool key(std::string& name) {
    key_ = name;
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Json*> open_;  // each is the last child of the one before, so none moves while it is here
  std::string key_;
};

std::optional<Json> parse(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text, &builder)) return std::nullopt;
  return std::move(builder.root);
}

bool is_hex(std::string_view digits) {
  return digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

/// The code unit of a \uXXXX escape at `at`, or -1.
int code_unit(std::string_view text, size_t at) {
  if (text.size() - at < 6 || text[at] != '\\' || text[at + 1] != 'u' || !is_hex(text.substr(at + 2, 4))) return -1;
  return std::stoi(std::string(text.substr(at + 2, 4)), nullptr, 16);
}

/// Marks NaN and the infinities outside strings; replaces lone surrogates inside them by U+FFFD.
std::string without_python(std::string_view text) {
  std::string plain;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (in_string && text[i] == '\\') {
      const int unit = code_unit(text, i);
      const int next = unit >= 0xD800 && unit < 0xDC00 ? code_unit(text, i + 6) : -1;
      const bool pair = next >= 0xDC00 && next < 0xE000;
      const size_t length = pair ? 12 : unit >= 0 ? 6 : 2;
      plain += unit >= 0xD800 && unit < 0xE000 && !pair ? std::string_view("\\ufffd") : text.substr(i, length);
      i += length;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    std::string_view word;
    for (const std::string_view candidate : {"NaN", "Infinity", "-Infinity"}) {
      if (!in_string && text.substr(i, candidate.size()) == candidate) word = candidate;
    }
    if (word.empty()) {
      plain += text[i++];
    } else {
      plain.append("\"").append(kMark).append(word).append("\"");
      i += word.size();
    }
  }
  return plain;
}

}  // namespace

std::optional<Json> parse_row(std::string_view text) {
  std::optional<Json> row = parse(text);
  return row ? std::move(row) : parse(without_python(text));
}

struct LineReader::State {
  std::filesystem::path file;
  gzFile handle = nullptr;
  std::array<char, 1 << 16> buffer{};
  size_t at = 0;
  size_t filled = 0;

  ~State() { gzclose_r(handle); }
};

LineReader::LineReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;

Result<LineReader> LineReader::open(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return failed(Status::kNotFound, file.string() + ": no such file; give the path of a .jsonl or .jsonl.gz",
                  Origin::kInput);
  }
  auto state = std::make_unique<State>();
  state->file = file;
  state->handle = gzopen(file.c_str(), "rb");
  if (state->handle == nullptr) return failed(Status::kNotFound, file.string() + ": cannot be read", Origin::kInput);
  return LineReader(std::move(state));
}

Result<std::optional<std::string>> LineReader::next() {
  std::string line;
  for (;;) {
    const std::string_view rest(state_->buffer.data() + state_->at, state_->filled - state_->at);
    const size_t end = rest.find('\n');
    line += rest.substr(0, end);
    if (end != std::string_view::npos) {
      state_->at += end + 1;
      return line;
    }
    const int got = gzread(state_->handle, state_->buffer.data(), static_cast<unsigned>(state_->buffer.size()));
    int fault = Z_OK;
    const char* words = gzerror(state_->handle, &fault);
    if (got < 0 || (fault != Z_OK && fault != Z_STREAM_END)) {
      return failed(Status::kDataLoss, state_->file.string() + ": damaged: " + words);
    }
    state_->at = 0;
    state_->filled = static_cast<size_t>(got);
    if (got == 0) {
      if (line.empty()) return std::optional<std::string>{};
      return line;
    }
  }
}

}  // namespace pliant::parity
