// The library Gloo, opened when it is first needed: a machine that has no use for it need not have it.
#pragma once

#include <memory>
#include <string>

namespace gloo::transport {
class Device;
}

namespace pliant::accelerator {

/// A TCP device of Gloo on the address `host`, with one thread that handles no signals. Throws PLIANT_UNIMPLEMENTED
/// when the library is not installed or this build has no headers of it, PLIANT_RESOURCE_EXHAUSTED when Gloo refuses.
std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& host);

/// Blocks SIGPIPE in this thread, and swallows one that came meanwhile: Gloo writes to sockets that may be closed.
class NoBrokenPipe {
 public:
  NoBrokenPipe();
  ~NoBrokenPipe();
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  bool was_blocked_ = true;
};

}  // namespace pliant::accelerator
