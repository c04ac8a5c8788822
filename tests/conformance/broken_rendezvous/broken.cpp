// The rendezvous `broken`: nodes of one process form generations, with the fault that the option names. TEST ONLY.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "pliant/sdk/rendezvous.hpp"

namespace {

namespace sdk = pliant::sdk;

/// One who is in a run, or waits to be.
struct Member {
  int32_t workers = 0;
  bool is_joining = false;
  sdk::Generation generation;
  bool is_told_to_join = false;
  bool has_left = false;
};

/// The nodes of a run. A generation begins when all of them join.
struct Run {
  std::vector<Member*> members;
  int64_t generation = 0;
};

std::mutex mutex;
std::condition_variable changed;
std::map<std::string, Run>& runs() {
  static std::map<std::string, Run> made;
  return made;
}

/// A port that nobody has, or with `taken` the socket that is appended to it.
int32_t port_of(std::vector<int>* taken) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (taken != nullptr) taken->push_back(socket);
  if (taken == nullptr) ::close(socket);
  if (!bound) throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "no port is free");
  return ntohs(address.sin_port);
}

class Broken {
 public:
  std::string fault = "none";

  static void options(sdk::Options<Broken>& table) {
    table.add("fault", &Broken::fault, "What is wrong: none, or a fault's name.");
  }
  Broken() = default;
  Broken(const Broken&) = delete;
  Broken& operator=(const Broken&) = delete;
  ~Broken() {
    if (!run_.empty()) {
      leave();
      const std::lock_guard lock(mutex);
      auto& members = runs()[run_].members;
      members.erase(std::remove(members.begin(), members.end(), &self_), members.end());
    }
    for (const int socket : taken_) ::close(socket);
  }
  [[nodiscard]] bool is(const char* name) const { return fault == name; }

  sdk::Generation join(const sdk::JoinRequest& request) {
    std::unique_lock lock(mutex);
    run_ = is("runs-mixed") && request.run_id.substr(0, 5) == "check" ? "one for all" : std::string(request.run_id);
    Run& run = runs()[run_];
    if (std::find(run.members.begin(), run.members.end(), &self_) == run.members.end()) run.members.push_back(&self_);
    self_.workers = request.local_workers;
    self_.is_joining = true;
    for (Member* const other : run.members) {
      other->is_told_to_join = other != &self_ && !other->is_joining && !is("join-unseen");
    }
    form_if_all_join(run);
    changed.notify_all();
    changed.wait(lock, [this] { return !self_.is_joining || (self_.has_left && !is("join-unended")); });
    if (self_.has_left && self_.is_joining) {
      self_.is_joining = false;
      throw left();
    }
    return self_.generation;
  }

  bool watch(int32_t timeout_ms) {
    std::unique_lock lock(mutex);
    const auto due = [this] { return (self_.has_left && !is("watch-unended")) || self_.is_told_to_join; };
    const bool forever = timeout_ms < 0 || (is("watch-forever") && timeout_ms == 30);
    if (forever) changed.wait(lock, due);
    if (!forever) changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), due);
    if (self_.has_left && is("watch-ended-well")) return false;
    if (self_.has_left && !is("watch-unended")) throw left();
    return self_.is_told_to_join;
  }

  void leave() {
    const std::lock_guard lock(mutex);
    self_.has_left = true;
    const auto found = runs().find(run_);
    if (found != runs().end()) {
      auto& members = found->second.members;
      const auto me = std::find(members.begin(), members.end(), &self_);
      if (me != members.end() && !(is("left-counted") && members.size() > 1)) members.erase(me);
      for (Member* const other : members) {
        other->is_told_to_join = !is("leave-unseen") && !other->is_joining;
      }
    }
    changed.notify_all();
  }

 private:
  [[nodiscard]] sdk::Failure left() const {
    return {PLIANT_ABORTED, is("without-words") ? "" : "this node has left the rendezvous"};
  }
  void form_if_all_join(Run& run) {
    const bool all = std::all_of(run.members.begin(), run.members.end(),
                                 [](const Member* one) { return one->is_joining || one->has_left; });
    if (!all) return;
    sdk::Generation made;
    for (const Member* const one : run.members) made.world_size += one->workers;
    const bool is_large = made.world_size > 6;  // others are answered well: the kit looks there for other faults
    if (!(is("generation-stays") && is_large) || run.generation == 0) ++run.generation;
    made.generation = run.generation;
    made.node_count = static_cast<int32_t>(run.members.size());
    made.master_addr = "127.0.0.1";
    made.master_port = port_of(is("port-taken") ? &taken_ : nullptr);
    if (is("port-none") && is_large) made.master_port = 0;
    if (is("workers-lost") && is_large) --made.world_size;
    for (Member* const one : run.members) {
      one->generation = made;
      one->is_joining = one->is_told_to_join = false;
      ++made.group_rank;
      if (!is("ranks-overlap")) made.first_rank += one->workers;
      if (is("generations-differ")) ++made.generation;
    }
  }

  Member self_;
  std::string run_;
  std::vector<int> taken_;
};

using Adapter = sdk::detail::RendezvousAdapter<Broken>;

const pliant_rendezvous& sdk_slots() {
  return *static_cast<const pliant_rendezvous*>(Adapter::vtable());
}

/// What the SDK's slots keep an author from.
int32_t join(void* self, const pliant_join_request* request, pliant_generation* made, pliant_error* error) {
  const Broken& broken = static_cast<Adapter::Instance*>(self)->plugin;
  const pliant_generation before = *made;
  const int32_t status = sdk_slots().join(self, request, made, error);
  if (status != PLIANT_OK) return status;
  if (broken.is("field-forgotten") && made->node_count == 1) made->first_rank = before.first_rank;
  if (broken.is("generation-past") && request->local_workers == 5) std::memset(made + 1, 0, sizeof(int64_t));
  return status;
}

int32_t watch(void* self, int32_t timeout_ms, int32_t* is_changed, pliant_error* error) {
  const Broken& broken = static_cast<Adapter::Instance*>(self)->plugin;
  const int32_t before = *is_changed;
  const int32_t status = sdk_slots().watch(self, timeout_ms, is_changed, error);
  if (status == PLIANT_OK && *is_changed == 0 && timeout_ms == 30) {
    if (broken.is("changed-unwritten")) *is_changed = before;
    if (broken.is("changed-odd")) *is_changed = 2;
  }
  return status;
}

}  // namespace

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  static const pliant_rendezvous kTable{sizeof(pliant_rendezvous), 0, &join, &watch, sdk_slots().leave};
  return sdk::detail::record<Broken, Adapter::Instance>(PLIANT_KIND_RENDEZVOUS, &kTable, "broken", "0.0.1",
                                                        "Broken on purpose, to test the kit");
}
