// Import: another system's config as a pliant.toml, with an account of every key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pliant {

/// Keys are dotted paths: `elasticity.min_gpus` in the source, `elasticity."v0.1".min_gpus` in the TOML.
struct ImportedConfig {
  struct Carried {
    std::string from;
    std::string to;  ///< a key, or a section that is there because of `from`
  };
  struct NotCarried {
    std::string key;
    std::string reason;  ///< one line, without the key
  };
  std::string toml;  ///< a whole document that Config::open accepts; the keys not carried stand at its end as comments
  std::vector<Carried> carried;         ///< in the order of the TOML
  std::vector<NotCarried> not_carried;  ///< in the order of the source
};

/// Keys of one block of the source that were left out for one reason.
struct NotCarriedBlock {
  std::string block;              ///< "fp16"; the whole key where there is but one: "fp16.enabled"
  std::string reason;             ///< one line
  std::vector<std::string> keys;  ///< below the block; empty where there is but one key
};
/// In the order of their first keys.
std::vector<NotCarriedBlock> by_block(const std::vector<ImportedConfig::NotCarried>& keys);

/// `fp16: precision belongs to the training program (enabled, loss_scale)`
std::string line_of(const NotCarriedBlock& block);

/// Translates a DeepSpeed config, JSON as Python reads it. The [elasticity] section plans as DeepSpeed does. Pure:
/// touches no file and no environment. `name` is how messages call the source, `target` what the TOML's comments call
/// the file that it will be written to. Throws Error (kInput), with a position, for text that is no JSON, for a block
/// that DeepSpeed refuses, and when nothing in the source can be carried.
ImportedConfig import_deepspeed(std::string_view json, std::string_view name = "ds_config.json",
                                std::string_view target = "FILE");

}  // namespace pliant
