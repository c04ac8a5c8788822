/* The sample embed_c calls this in place of pliant_session_start: it brings every callback that a session takes, and
 * the process that makes the file [app] once is wrong in call `breaks_at` of the one that `breaks` names. */
#undef pliant_session_start
#include <inttypes.h>
#include <pliant.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t start_with_callbacks(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error);

enum { kNoStatus = 99 };

static struct callbacks {
  pliant_config_t* config; /* has the texts below */
  const char *breaks, *once;
  int64_t breaks_at;
  int64_t calls; /* of that one */
  char kept[8];  /* what is in no array */
} own = {.kept = "a state"};

/* Whether this call of callback `name` is the one that is wrong. */
static int is_wrong(const char* name) {
  if (strcmp(own.breaks, name) != 0 || ++own.calls != own.breaks_at) return 0;
  FILE* const made = fopen(own.once, "wx");
  if (made == NULL) return 0;
  fclose(made);
  return 1;
}

static int32_t save(void* context, void* to, uint64_t room, uint64_t* bytes) {
  (void)context;
  *bytes = sizeof(own.kept);
  if (is_wrong("save")) return kNoStatus;
  if (to == NULL && is_wrong("most of save")) *bytes = UINT64_MAX;
  if (to == NULL) return PLIANT_OK;
  if (room < sizeof(own.kept)) exit(9);
  memcpy(to, own.kept, sizeof(own.kept));
  if (is_wrong("bytes of save")) --*bytes;
  return PLIANT_OK;
}

static int32_t load(void* context, const void* saved, uint64_t bytes) {
  (void)context;
  if (is_wrong("load")) return kNoStatus;
  if (bytes != sizeof(own.kept)) exit(9);
  memcpy(own.kept, saved, sizeof(own.kept));
  return PLIANT_OK;
}

static int32_t before(void* context, int64_t step) {
  (void)context;
  (void)step;
  return is_wrong("before") ? kNoStatus : PLIANT_OK;
}

static void after(void* context, int64_t step, const char* file, const char* why) {
  (void)context;
  (void)file;
  fprintf(stderr, "embed_c_breaks: after step %" PRId64 ": %s\n", step, why);
}

int32_t start_with_callbacks(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error) {
  if (pliant_session_config(session, &own.config, error) != PLIANT_OK ||
      pliant_config_app_text(own.config, "breaks", "", &own.breaks, error) != PLIANT_OK ||
      pliant_config_app_int(own.config, "breaks_at", 1, &own.breaks_at, error) != PLIANT_OK ||
      pliant_config_app_text(own.config, "once", "", &own.once, error) != PLIANT_OK)
    exit(9);
  pliant_state_t brought = *state;
  brought.save = save;
  brought.load = load;
  if (pliant_session_on_snapshot(session, before, after, NULL, error) != PLIANT_OK) exit(9);
  return pliant_session_start(session, dataset, &brought, error);
}
