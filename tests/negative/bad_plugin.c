/* One elasticity plugin that is broken in the way that VARIANT_<name> says; VARIANT_good is whole. Written against the
 * C ABI alone, because the SDK would not let most of this be written. */
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/plugin.h"

#define EXPORT __attribute__((visibility("default")))
#define USED __attribute__((unused))

#ifdef VARIANT_undefined_symbol
extern int32_t nobody_defines_this(void);
#endif

USED static int32_t plan(void* self, const pliant_plan_request* request, pliant_plan* out,
                         const pliant_world_sink* sizes, pliant_error* error) {
  (void)self;
  (void)error;
  const pliant_world_range range = {1, 8, 1};
  out->global_batch = 8;
  out->micro_batch = request->world_size > 0 ? 1 : 0;
  out->granule = 1;
  out->model_parallel_size = 1;
#ifdef VARIANT_undefined_symbol
  out->global_batch = nobody_defines_this();
#endif
  return sizes->append(sizes->context, &range, 1);
}

USED static int object;

static int32_t create(const pliant_host* host, const pliant_option_values* values, void** self, pliant_error* error) {
  (void)host;
  (void)values;
  (void)error;
  (void)self;
#if defined(VARIANT_create_silent)
  return 77;
#elif defined(VARIANT_create_makes_nothing)
  return PLIANT_OK;
#else
  *self = &object;
  return PLIANT_OK;
#endif
}

static void destroy(void* self) {
  (void)self;
}

#ifdef VARIANT_only_save
static int32_t save(void* self, const pliant_writer* writer, pliant_error* error) {
  (void)self;
  (void)writer;
  (void)error;
  return PLIANT_OK;
}
#endif

static const pliant_elasticity_policy slots = {
#ifdef VARIANT_short_vtable
    8,
#else
    sizeof(pliant_elasticity_policy),
#endif
    0,
#ifdef VARIANT_null_slot
    NULL,
#else
    &plan,
#endif
};

static const pliant_value fifty = {sizeof(pliant_value), PLIANT_INT, 1, 0, 50, 0.0, {NULL, 0}, 0, NULL, NULL, NULL};
static const pliant_value listed = {
    sizeof(pliant_value), PLIANT_INT_LIST, 1, 0, 0, 0.0, {NULL, 0}, 3, NULL, NULL, NULL};

static pliant_option option(const char* key) {
  const pliant_option made = {sizeof(pliant_option),
                              PLIANT_INT,
                              PLIANT_OPTION_HAS_MIN | PLIANT_OPTION_HAS_MAX,
                              0,
                              key,
                              "One sentence.",
                              "rows",
                              &fifty,
                              1,
                              100,
                              0,
                              0,
                              NULL,
                              0,
                              0};
  return made;
}

static void break_table(pliant_option* rows) {
  rows[0] = option("first");
  rows[1] = option("second");
#if defined(VARIANT_null_key)
  rows[1].key = NULL;
#elif defined(VARIANT_bad_key)
  rows[1].key = "Not A Key";
#elif defined(VARIANT_duplicate_key)
  rows[1].key = "first";
#elif defined(VARIANT_null_doc)
  rows[1].doc = NULL;
#elif defined(VARIANT_null_unit)
  rows[1].unit = NULL;
#elif defined(VARIANT_default_out_of_range)
  rows[1].int_max = 49;
#elif defined(VARIANT_empty_range)
  rows[1].int_min = 200;
#elif defined(VARIANT_unknown_type)
  rows[1].type = 99;
#elif defined(VARIANT_default_of_another_type)
  rows[1].type = PLIANT_FLOAT;
#elif defined(VARIANT_default_points_nowhere)
  rows[1].type = PLIANT_INT_LIST;
  rows[1].default_value = &listed;
#elif defined(VARIANT_null_choices)
  rows[1].type = PLIANT_STRING;
  rows[1].default_value = NULL;
  rows[1].choice_count = 2;
#elif defined(VARIANT_short_option)
  rows[1].struct_size = 16;
#elif defined(VARIANT_required_with_default)
  rows[1].flags |= PLIANT_OPTION_REQUIRED;
#elif defined(VARIANT_row_file_that_is_no_string)
  rows[1].flags |= PLIANT_OPTION_ROW_IDS;
#elif defined(VARIANT_ids_without_offsets)
  rows[1].type = PLIANT_STRING;
  rows[1].flags = PLIANT_OPTION_ROW_IDS;
  rows[1].default_value = NULL;
#endif
  (void)listed;
}

static pliant_option rows[2];
static pliant_plugin record;

static const pliant_plugin* fill(void) {
  break_table(rows);
  record.struct_size = sizeof(pliant_plugin);
  record.option_count = 2;
  record.option_stride = sizeof(pliant_option);
  record.options = rows;
  record.kind = PLIANT_KIND_ELASTICITY_POLICY;
  record.name = PLUGIN_NAME;
  record.version = "1.0.0";
  record.summary = "Broken on purpose.";
  record.create = &create;
  record.destroy = &destroy;
  record.vtable = &slots;
#if defined(VARIANT_null_record)
  return NULL;
#elif defined(VARIANT_short_record)
  record.struct_size = 24;
#elif defined(VARIANT_too_new)
  record.min_host_minor = 99;
#elif defined(VARIANT_null_vtable)
  record.vtable = NULL;
#elif defined(VARIANT_null_options)
  record.options = NULL;
#elif defined(VARIANT_zero_stride)
  record.option_stride = 0;
#elif defined(VARIANT_wrong_kind)
  record.kind = "pliant.lr_rule/0";
#elif defined(VARIANT_other_revision)
  record.kind = "pliant.elasticity_policy/7";
#elif defined(VARIANT_null_name)
  record.name = NULL;
#elif defined(VARIANT_another_name)
  record.name = "somebody-else";
#elif defined(VARIANT_no_create)
  record.create = NULL;
#elif defined(VARIANT_only_save)
  record.save = &save;
#endif
  return &record;
}

#if defined(VARIANT_other_major)
EXPORT const pliant_plugin* pliant_plugin_entry_v7(void);
EXPORT const pliant_plugin* pliant_plugin_entry_v7(void) {
  return fill();
}
#elif defined(VARIANT_no_symbol)
EXPORT const pliant_plugin* something_else(void);
EXPORT const pliant_plugin* something_else(void) {
  return fill();
}
#else
EXPORT const pliant_plugin* pliant_plugin_entry_v1(void);
EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  return fill();
}
#endif
