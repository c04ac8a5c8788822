/* The sample embed_c calls this in place of pliant_session_attach: its launcher is not its agent. */
#undef pliant_session_attach
#include <pliant.h>
#include <stdlib.h>

int32_t attach_as_called(pliant_session_t** session, pliant_error_t* error);

int32_t attach_as_called(pliant_session_t** session, pliant_error_t* error) {
  const char* const address = getenv("TEST_ADDRESS");
  const char* const rank = getenv("RANK");
  const char* const ranks = getenv("WORLD_SIZE");
  if (address == NULL || rank == NULL || ranks == NULL) exit(9);
  const int64_t world_size = strtoll(ranks, NULL, 10);
  if (pliant_session_attach_at(session, address, world_size, world_size, error) != PLIANT_INVALID_ARGUMENT) exit(9);
  if (pliant_session_attach_at(session, NULL, 0, world_size, error) != PLIANT_INVALID_ARGUMENT) exit(9);
  if (pliant_session_attach_at(session, "pliant-nobody-is-here", 0, 1, error) != PLIANT_FAILED_PRECONDITION) exit(9);
  if (error->exit_code != 2 || *session != NULL) exit(9);
  const int32_t status = pliant_session_attach_at(session, address, strtoll(rank, NULL, 10), world_size, error);
  if (status == PLIANT_OK && pliant_leave_stop_signals_to_agent() != PLIANT_OK) exit(9);
  return status;
}
