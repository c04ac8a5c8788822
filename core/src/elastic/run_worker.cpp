// run_worker(): what the main function of most workers is.
#include <cstdio>
#include <exception>

#include "pliant/exit_code.hpp"
#include "pliant/log.hpp"
#include "pliant/session.hpp"

namespace pliant {

int run_worker(const char* program, const std::function<void(Session& session)>& train) {
  log_to_stderr();
  leave_stop_signals_to_agent();
  try {
    Session session = Session::attach();
    train(session);
    return static_cast<int>(ExitCode::kOk);
  } catch (const Error& error) {
    if (!error.is_located()) std::fprintf(stderr, "%s: ", program);
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_code_of(error));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return static_cast<int>(ExitCode::kFailed);
  }
}

}  // namespace pliant
