/* The sample embed_c calls this in place of pliant_session_start: what is refused first changes nothing. */
#undef pliant_session_start
#include <pliant.h>
#include <stdlib.h>

int32_t start_after_refusals(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error);

int32_t start_after_refusals(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error) {
  pliant_state_array_t arrays[2] = {state->arrays[0], state->arrays[0]}; /* of one name */
  pliant_state_t wrong = *state;
  wrong.arrays = arrays;
  wrong.array_count = 2;
  if (pliant_session_start(session, dataset, &wrong, error) != PLIANT_INVALID_ARGUMENT) exit(9);
  arrays[1].name = "other";
  arrays[1].memory = NULL;
  if (pliant_session_start(session, dataset, &wrong, error) != PLIANT_INVALID_ARGUMENT) exit(9);
  arrays[1].memory =
      (void*)(uintptr_t) "text that nobody writes to, of more bytes than two floats have"; /* read only */
  arrays[1].dimensions = 0;
  if (pliant_session_start(session, dataset, &wrong, error) != PLIANT_INVALID_ARGUMENT) exit(9);
  pliant_step_t step = PLIANT_INIT(pliant_step_t);
  if (pliant_session_next(session, &step, error) != PLIANT_FAILED_PRECONDITION) exit(9);
  const int32_t status = pliant_session_start(session, dataset, state, error);
  if (pliant_session_start(session, dataset, state, NULL) != PLIANT_FAILED_PRECONDITION) exit(9);
  return status;
}
