/* The record that a plugin hands to the host, and what the host offers in return. C11, append-only.
 *
 * A plugin is a shared library with one exported symbol, pliant_plugin_entry_v1. Major version: in that symbol's name.
 * Minor version: fields appended under struct_size. Kinds are versioned on their own ("pliant.batch_sampler/0"). */
#ifndef PLIANT_ABI_PLUGIN_H
#define PLIANT_ABI_PLUGIN_H

#include "pliant/abi/base.h"
#include "pliant/abi/options.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_PLUGIN_ENTRY_SYMBOL "pliant_plugin_entry_v1"

enum { PLIANT_LOG_DEBUG = 0, PLIANT_LOG_INFO = 1, PLIANT_LOG_WARNING = 2, PLIANT_LOG_ERROR = 3 };

/* Services of the host. Lives longer than every instance created with it. */
typedef struct pliant_host {
  uint32_t struct_size;
  uint32_t abi_minor;
  void* context;
  /* [any-thread] One line, no newline. The host filters by level and adds the plugin's name. */
  void (*log)(void* context, int32_t level, pliant_str message);
  /* [any-thread] A service by id, or NULL when this host has none of that name. No id is defined so far. */
  const void* (*extension)(void* context, const char* id);
} pliant_host;

typedef struct pliant_plugin {
  uint32_t struct_size;
  uint32_t abi_minor;      /* what the plugin was compiled against: it keeps the promises of then */
  uint32_t min_host_minor; /* the oldest host that this plugin can run on */
  uint32_t option_count;
  uint64_t option_stride; /* bytes from one row of options to the next */
  const pliant_option* options;
  const char* kind;    /* "pliant.elasticity_policy/0", ... */
  const char* name;    /* what `use = "..."` says; [a-z0-9][a-z0-9._-]* */
  const char* version; /* the plugin's own semver */
  const char* summary; /* one line */
  /* [control-thread] Makes an instance. On failure *self stays NULL and destroy is not called. */
  int32_t (*create)(const pliant_host* host, const pliant_option_values* values, void** self, pliant_error* error);
  /* [control-thread] */
  void (*destroy)(void* self);
  /* [control-thread] State of an instance; both NULL when it has none. load replaces all state, or fails and changes
   * nothing. */
  int32_t (*save)(void* self, const pliant_writer* writer, pliant_error* error);
  int32_t (*load)(void* self, const pliant_reader* reader, pliant_error* error);
  /* The slots of the kind, size-prefixed; never NULL. */
  const void* vtable;
  /* [any-thread] Optional powers by id, or NULL for an unknown id. The slot itself may be NULL. */
  const void* (*extension)(void* self, const char* id);
} pliant_plugin;

typedef const pliant_plugin* (*pliant_plugin_entry)(void);

#ifdef __cplusplus
}
#endif
#endif
