// Times gloo::allgather, ReduceScatterHalvingDoubling, allreduce and broadcast of floats between processes over TCP on
// loopback.
// Usage: gloo_peer RANKS REPETITIONS EMPTY_FOLDER BYTES...
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>

#include "peer_timing.hpp"

namespace {

struct Settings {
  int ranks;
  int repetitions;
  std::string folder;
  std::vector<uint64_t> sizes;
  int64_t* board;  ///< shared: `repetitions` times of each rank
};

class RankOfGloo {
 public:
  RankOfGloo(int rank, const Settings& settings)
      : rank_(rank), settings_(settings), context_(std::make_shared<gloo::rendezvous::Context>(rank, settings.ranks)) {
    gloo::transport::tcp::attr loopback;
    loopback.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(loopback);
    gloo::rendezvous::FileStore store(settings.folder);
    context_->connectFullMesh(store, device);
  }

  void measure_all() {
    for (const uint64_t bytes : settings_.sizes) {
      const size_t all = bytes / sizeof(float);
      const size_t part = all / static_cast<size_t>(settings_.ranks);
      std::vector<float> large(all, 0.75F);
      std::vector<float> small(part, 0.75F);
      gloo::AllgatherOptions gather(context_);
      gather.setInput(small.data(), part);
      gather.setOutput(large.data(), all);
      measure("all_gather", bytes, [&] { gloo::allgather(gather); });
      gloo::ReduceScatterHalvingDoubling<float> scatter(
          context_, {large.data()}, static_cast<int>(all),
          std::vector<int>(static_cast<size_t>(settings_.ranks), static_cast<int>(part)));
      std::fill(large.begin(), large.end(), 0.0F);  // the sums stay in place: zeroes stay zeroes
      measure("reduce_scatter", bytes, [&] { scatter.run(); });
      std::vector<float> sums(all);
      gloo::AllreduceOptions reduce(context_);
      reduce.setInput(large.data(), all);
      reduce.setOutput(sums.data(), all);
      reduce.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      measure("all_reduce", bytes, [&] { gloo::allreduce(reduce); });
      gloo::BroadcastOptions cast(context_);
      cast.setOutput(large.data(), all);
      cast.setRoot(0);
      measure("broadcast", bytes, [&] { gloo::broadcast(cast); });
    }
  }

 private:
  template <class Call>
  void measure(const char* what, uint64_t bytes, Call&& call) {
    for (const int calls : {1, peer::kCallsInARow}) {
      const auto own = peer::times_ns(
          settings_.repetitions, calls, [this] { barrier(); }, call);
      std::copy(own.begin(), own.end(), settings_.board + static_cast<ptrdiff_t>(own.size()) * rank_);
      barrier();
      if (rank_ == 0) {
        std::vector<int64_t> slowest(own.size(), 0);
        for (size_t at = 0; at < own.size() * static_cast<size_t>(settings_.ranks); ++at) {
          slowest[at % own.size()] = std::max(slowest[at % own.size()], settings_.board[at]);
        }
        peer::print(what, bytes, calls, slowest);
      }
      barrier();
    }
  }
  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  int rank_;
  const Settings& settings_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

int run_rank(int rank, const Settings& settings) {
  try {
    RankOfGloo(rank, settings).measure_all();
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "gloo_peer: rank %d: %s\n", rank, failure.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  Settings settings{std::atoi(argv[1]), std::atoi(argv[2]), argv[3], {}, nullptr};
  for (int i = 4; i < argc; ++i) settings.sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  const size_t bytes =
      sizeof(int64_t) * static_cast<size_t>(settings.ranks) * static_cast<size_t>(settings.repetitions);
  settings.board =
      static_cast<int64_t*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(run_rank(rank, settings));
  }
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}
