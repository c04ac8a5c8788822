// A recursive descent over JSON text that counts lines and characters.
#include "import/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "config/values/source.hpp"

namespace pliant::config::deepspeed {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

void append_utf8(std::string& text, uint32_t point) {
  const auto byte = [&text](uint32_t value) { text += static_cast<char>(static_cast<unsigned char>(value)); };
  const auto tail = [&](uint32_t shift) { byte(0x80U | ((point >> shift) & 0x3FU)); };
  if (point < 0x80) return byte(point);
  byte(point < 0x800 ? 0xC0U | (point >> 6U) : point < 0x10000 ? 0xE0U | (point >> 12U) : 0xF0U | (point >> 18U));
  if (point >= 0x10000) tail(12);
  if (point >= 0x800) tail(6);
  tail(0);
}

class Reader {
 public:
  Reader(std::string_view text, Diagnostics& diagnostics) : text_(text), diagnostics_(diagnostics) {}

  std::optional<Json> run() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
    skip_space();
    if (at_ == text_.size()) return object("there is no JSON in this file");
    std::optional<Json> root = value(0);
    skip_space();
    if (root && at_ < text_.size()) object("the JSON value has ended, but the file goes on");
    return failed_ ? std::nullopt : std::move(root);
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[nodiscard]] ValueOrigin here() const { return {Layer::kFile, line_, column_, 1, ""}; }

  void advance(size_t bytes) {
    for (size_t i = 0; i < bytes && at_ < text_.size(); ++i, ++at_) {
      if (text_[at_] == '\n') {
        ++line_;
        column_ = 1;
      } else if ((static_cast<unsigned char>(text_[at_]) & 0xC0U) != 0x80U) {
        ++column_;
      }
    }
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) advance(1);
  }

  std::nullopt_t object(std::string message, std::vector<std::string> notes = {}) {
    if (!failed_) diagnostics_.error(here(), std::move(message), std::move(notes));
    failed_ = true;
    return std::nullopt;
  }

  /// What stands here instead of `wanted`, with the reason for the usual mistakes.
  std::nullopt_t unexpected(const std::string& wanted, const char* note = nullptr) {
    if (at_ == text_.size()) return object(fmt::format("the file ends where {} must follow", wanted));
    const char c = peek();
    const size_t size = character_size(text_, at_);
    if (size == 0) return object(fmt::format("byte 0x{:02x} is not UTF-8 text", static_cast<unsigned char>(c)));
    std::vector<std::string> notes;
    if (note != nullptr) notes.emplace_back(note);
    if (c == '#' || c == '/') notes.emplace_back("JSON has no comments; remove them, or convert Hjson to JSON first");
    if (c == '\'') notes.emplace_back("strings need double quotes");
    if (c == '}' || c == ']') notes.emplace_back("no comma is allowed before a closing bracket");
    if (c == 'T' || c == 'F' || c == 'N') notes.emplace_back("true, false and null must be in lower case");
    const auto byte = static_cast<unsigned char>(c);
    const std::string found = byte < 0x20 || byte == 0x7f ? fmt::format("control character 0x{:02x}", byte)
                                                          : fmt::format("'{}'", text_.substr(at_, size));
    return object(fmt::format("expected {}, found {}", wanted, found), std::move(notes));
  }

  std::optional<Json> value(int depth) {
    Json made;
    made.origin = here();
    if (depth > kDeepest) return object(fmt::format("nesting deeper than {} levels", kDeepest));
    const size_t from = at_;
    bool good = false;
    switch (peek()) {
      case '{':
        good = members(made, depth);
        break;
      case '[':
        good = items(made, depth);
        break;
      case '"':
        made.type = Json::Type::kString;
        good = string(made.text);
        break;
      default:
        good = word(made) || number(made);
        if (!good) unexpected("a value", depth == 0 ? "a DeepSpeed config is JSON: {\"elasticity\": {...}}" : nullptr);
    }
    if (!good) return std::nullopt;
    made.origin.length = made.origin.line == line_ ? static_cast<uint32_t>(at_ - from) : 1;
    return made;
  }

  bool word(Json& made) {
    using Kind = Json::Type;
    for (const auto& [text, type] : {std::pair<std::string_view, Kind>{"null", Kind::kNull},
                                     {"true", Kind::kBool},
                                     {"false", Kind::kBool},
                                     {"NaN", Kind::kFloat},
                                     {"Infinity", Kind::kFloat},
                                     {"-Infinity", Kind::kFloat}}) {
      if (text_.substr(at_, text.size()) != text) continue;
      made.type = type;
      made.boolean = text == "true";
      made.text = text;
      advance(text.size());
      return true;
    }
    return false;
  }

  bool number(Json& made) {
    size_t end = at_;
    const auto digits = [&] {
      const size_t from = end;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      return end > from;
    };
    if (peek() == '-') ++end;
    if (end < text_.size() && text_[end] == '0') {
      ++end;
    } else if (!digits()) {
      return false;
    }
    made.type = Json::Type::kInt;
    const size_t whole = end;
    if (end < text_.size() && text_[end] == '.') {
      ++end;
      if (!digits()) end = whole;
    }
    const size_t before_exponent = end;
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      ++end;
      if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
      if (!digits()) end = before_exponent;
    }
    if (end > whole) made.type = Json::Type::kFloat;
    made.text = text_.substr(at_, end - at_);
    advance(end - at_);
    return true;
  }

  bool string(std::string& into) {
    advance(1);
    while (peek() != '"' || at_ == text_.size()) {
      if (at_ == text_.size() || peek() == '\n') {
        object("the string does not end on this line");
        return false;
      }
      if (peek() == '\\') {
        if (!escape(into)) return false;
        continue;
      }
      const size_t size = character_size(text_, at_);
      const auto byte = static_cast<unsigned char>(peek());
      if (size == 0 || byte < 0x20) {
        object(size == 0 ? fmt::format("byte 0x{:02x} is not UTF-8 text", byte)
                         : fmt::format("control character 0x{:02x} must be written \\u{:04x}", byte, byte));
        return false;
      }
      into += text_.substr(at_, size);
      advance(size);
    }
    advance(1);
    return true;
  }

  bool escape(std::string& into) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt";
    static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
    const char letter = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    const size_t known = kLetters.find(letter);
    if (letter != '\0' && known != std::string_view::npos) {
      into += kMeaning[known];
      advance(2);
      return true;
    }
    std::optional<uint32_t> unit = code_unit(at_);
    if (!unit) {
      object("unknown escape; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
      return false;
    }
    advance(6);
    if (*unit >= 0xD800 && *unit < 0xDC00) {
      if (const auto low = code_unit(at_); low && *low >= 0xDC00 && *low < 0xE000) {
        unit = 0x10000 + ((*unit - 0xD800) << 10U) + (*low - 0xDC00);
        advance(6);
      }
    }
    append_utf8(into, *unit >= 0xD800 && *unit < 0xE000 ? 0xFFFD : *unit);
    return true;
  }

  /// The \uXXXX at byte `at`.
  [[nodiscard]] std::optional<uint32_t> code_unit(size_t at) const {
    if (text_.size() - at < 6 || text_[at] != '\\' || text_[at + 1] != 'u') return std::nullopt;
    uint32_t unit = 0;
    for (const char c : text_.substr(at + 2, 4)) {
      const size_t digit = std::string_view("0123456789abcdefABCDEF").find(c);
      if (digit == std::string_view::npos) return std::nullopt;
      unit = unit * 16 + static_cast<uint32_t>(digit < 16 ? digit : digit - 6);
    }
    return unit;
  }

  bool items(Json& made, int depth) {
    made.type = Json::Type::kArray;
    advance(1);
    skip_space();
    if (peek() == ']') return advance(1), true;
    for (;;) {
      std::optional<Json> item = value(depth + 1);
      if (!item) return false;
      made.items.push_back(std::move(*item));
      const std::optional<bool> more = another(']', "',' or ']'");
      if (!more || !*more) return more.has_value();
    }
  }

  bool members(Json& made, int depth) {
    made.type = Json::Type::kObject;
    std::map<std::string, size_t, std::less<>> known;
    advance(1);
    skip_space();
    if (peek() == '}') return advance(1), true;
    for (;;) {
      JsonMember member;
      if (peek() != '"') return unexpected("a key in double quotes"), false;
      if (!string(member.key)) return false;
      skip_space();
      if (peek() != ':') return unexpected("':' after the key"), false;
      advance(1);
      skip_space();
      std::optional<Json> read = value(depth + 1);
      if (!read) return false;
      member.value = std::move(*read);
      if (const auto [found, fresh] = known.try_emplace(member.key, made.members.size()); !fresh) {
        member.times = made.members[found->second].times + 1;
        made.members[found->second] = std::move(member);
      } else {
        made.members.push_back(std::move(member));
      }
      const std::optional<bool> more = another('}', "',' or '}'");
      if (!more || !*more) return more.has_value();
    }
  }

  /// True after a comma, false after `close`, nullopt when neither is there.
  std::optional<bool> another(char close, const char* wanted) {
    skip_space();
    const char c = peek();
    if (c != ',' && c != close) return unexpected(wanted);
    advance(1);
    skip_space();
    return c == ',';
  }

  std::string_view text_;
  Diagnostics& diagnostics_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  uint32_t column_ = 1;
  bool failed_ = false;
};

}  // namespace

const Json* Json::find(std::string_view key) const {
  const auto found = std::find_if(members.begin(), members.end(), [&](const JsonMember& m) { return m.key == key; });
  return found == members.end() ? nullptr : &found->value;
}

std::optional<Json> parse_json(std::string_view text, Diagnostics& diagnostics) {
  return Reader(text, diagnostics).run();
}

}  // namespace pliant::config::deepspeed
