/* Options are data: a plugin declares its table, the host parses TOML once and hands over checked values. C11,
 * append-only. */
#ifndef PLIANT_ABI_OPTIONS_H
#define PLIANT_ABI_OPTIONS_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types of an option. Lists hold one scalar type. */
enum {
  PLIANT_BOOL = 1,
  PLIANT_INT = 2,
  PLIANT_FLOAT = 3,
  PLIANT_STRING = 4,
  PLIANT_BOOL_LIST = 5,
  PLIANT_INT_LIST = 6,
  PLIANT_FLOAT_LIST = 7,
  PLIANT_STRING_LIST = 8
};

/* One value. Which fields count depends on type; the others are zero. */
typedef struct pliant_value {
  uint32_t struct_size;
  int32_t type;   /* PLIANT_BOOL .. PLIANT_STRING_LIST */
  int32_t is_set; /* 0: optional option without a value */
  int32_t reserved;
  int64_t integer;         /* bool (0 or 1), int */
  double real;             /* float */
  pliant_str text;         /* string */
  uint64_t count;          /* lists: number of elements */
  const int64_t* integers; /* bool list, int list */
  const double* reals;     /* float list */
  const pliant_str* texts; /* string list */
} pliant_value;

enum {
  PLIANT_OPTION_REQUIRED = 1, /* no default: the user must give it */
  PLIANT_OPTION_HAS_MIN = 2,
  PLIANT_OPTION_HAS_MAX = 4,
  /* A string of a batch sampler: the path of a .npy file. The host makes it absolute, counted from the config's folder,
   * and reads the file: its numbers are row_offsets and row_ids of pliant_epoch_request. Each at most once in a table,
   * and both or none. */
  PLIANT_OPTION_ROW_OFFSETS = 8,
  PLIANT_OPTION_ROW_IDS = 16
};

/* One row of the table. Ranges are inclusive and apply to each element of a list. Pointers live as long as the library.
 */
typedef struct pliant_option {
  uint32_t struct_size;
  int32_t type;
  uint32_t flags;
  uint32_t choice_count;             /* strings: number of allowed values, 0 = any */
  const char* key;                   /* [a-z][a-z0-9_]* , unique in the table */
  const char* doc;                   /* one sentence, never empty */
  const char* unit;                  /* "tokens", "rows", "s"; "" when it has none */
  const pliant_value* default_value; /* NULL: required, or optional and unset */
  int64_t int_min, int_max;          /* counts with HAS_MIN / HAS_MAX for int and int list */
  double float_min, float_max;       /* likewise for float and float list */
  const char* const* choices;
  uint64_t list_min, list_max; /* number of elements; list_max 0 = no limit */
} pliant_option;

/* The checked values, in the order of the plugin's own table. Rows are `stride` bytes apart. */
typedef struct pliant_option_values {
  uint32_t struct_size;
  uint32_t count;
  uint64_t stride;
  const pliant_value* values;
} pliant_option_values;

#ifdef __cplusplus
}
#endif
#endif
