// What pliant.h says of the threads of each function, in one word.
#pragma once

#include <map>
#include <regex>
#include <string>

#include "scratch_folder.hpp"

namespace pliant::test {

/// "any", "serial" or "maker", by the name of the function; empty where the header does not say.
inline std::map<std::string, std::string> thread_words() {
  const std::string text = read_all(std::string(PLIANT_SOURCE_DIR) + "/core/capi/include/pliant.h");
  // A comment behind a declaration counts for it alone, one before it for the declarations up to the next comment.
  const std::regex piece(R"(/\*[\s\S]*?\*/|PLIANT_API (?:int32_t|const char\*) [^;]*;)");
  const std::regex comment_behind(R"(^ +/\*[\s\S]*?\*/)");
  const std::regex thread(R"(\[(any|serial|maker)\] \*/$)");
  const std::regex function(R"((pliant_\w+)\((?!\*))");
  std::map<std::string, std::string> words;
  std::string before;
  for (std::sregex_iterator at(text.begin(), text.end(), piece), end; at != end; ++at) {
    const std::string found = at->str();
    if (found[0] == '/') {
      before = found;
      continue;
    }
    const std::string after = at->suffix().str().substr(0, 200);
    std::smatch behind;
    const std::string said = std::regex_search(after, behind, comment_behind) ? behind[0].str() : before;
    std::smatch word;
    std::smatch name;
    if (!std::regex_search(found, name, function)) continue;
    words[name[1]] = std::regex_search(said, word, thread) ? word[1].str() : std::string();
  }
  return words;
}

}  // namespace pliant::test
