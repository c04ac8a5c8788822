// HonestIpc<T>: Honest<T> whose memory other processes map. TEST ONLY, as that.
#pragma once

#include "honest.hpp"
#include "pliant/sdk/ipc.hpp"

namespace pliant::broken {

template <class T>
class HonestIpc : public Honest<T> {
 public:
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_IPC) == 0 ? sdk::ipc_table<T>() : Honest<T>::extension(id);
  }

 protected:
  static bool is_imported(const accelerator::Event& event) {
    return event.shared() != nullptr && !event.shared()->is_own();
  }
};

}  // namespace pliant::broken
