// Opens libgloo by name. All but one of its functions that are needed are virtual, so this is the only symbol to find.
#include "common/gloo/api.hpp"

#include <dlfcn.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/attr.h>
#include <pthread.h>
#include <signal.h>

#include <ctime>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

constexpr char kLibrary[] = "libgloo.so.0";
// gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr const&)
constexpr char kCreateDevice[] = "_ZN4gloo9transport3tcp12CreateDeviceERKNS1_4attrE";
using CreateDevice = std::shared_ptr<gloo::transport::Device> (*)(const gloo::transport::tcp::attr&);

CreateDevice open_library() {
  // Never unloaded: its exceptions may live longer than its devices.
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* found = library == nullptr ? nullptr : ::dlsym(library, kCreateDevice);
  if (found == nullptr) {
    const char* reason = ::dlerror();
    throw Failure(PLIANT_UNIMPLEMENTED,
                  std::string("transport = \"gloo\" needs Gloo's library, which cannot be opened: ") +
                      (reason == nullptr ? kLibrary : reason) + "; install it (Debian: libgloo0) on every machine");
  }
  return reinterpret_cast<CreateDevice>(found);
}

class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& host) {
  const CreateDevice create = open_library();
  const AllSignalsBlocked blocked;  // the device's thread inherits that
  gloo::transport::tcp::attr wanted(host.c_str());
  try {
    return create(wanted);
  } catch (const std::exception& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, "Gloo cannot use " + host + ": " + refused.what());
  }
}

NoBrokenPipe::NoBrokenPipe() {
  sigset_t pipe;
  sigset_t before;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  was_blocked_ = ::sigismember(&before, SIGPIPE) == 1;
}

NoBrokenPipe::~NoBrokenPipe() {
  if (was_blocked_) return;
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  const timespec now{};
  while (::sigtimedwait(&pipe, nullptr, &now) == SIGPIPE) continue;
  ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace pliant::accelerator
