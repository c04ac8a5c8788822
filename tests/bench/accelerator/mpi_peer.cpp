// Times MPI_Allgather, MPI_Reduce_scatter_block, MPI_Allreduce and MPI_Bcast of floats. Usage: mpirun -n RANKS mpi_peer
// REPETITIONS BYTES...
#include <mpi.h>

#include <cstdlib>

#include "peer_timing.hpp"

namespace {

template <class Call>
void measure(const char* what, uint64_t bytes, int repetitions, Call&& call) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const int calls : {1, peer::kCallsInARow}) {
    const std::vector<int64_t> own = peer::times_ns(
        repetitions, calls, [] { MPI_Barrier(MPI_COMM_WORLD); }, call);
    std::vector<int64_t> slowest(own.size());
    MPI_Reduce(own.data(), slowest.data(), static_cast<int>(own.size()), MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) peer::print(what, bytes, calls, slowest);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 5;
  for (int i = 2; i < argc; ++i) {
    const uint64_t bytes = std::strtoull(argv[i], nullptr, 10);
    const uint64_t all = bytes / sizeof(float);
    const int part = static_cast<int>(all / static_cast<uint64_t>(ranks));
    std::vector<float> large(all, 0.75F);
    std::vector<float> small(static_cast<size_t>(part), 0.75F);
    std::vector<float> sums(all);
    measure("all_gather", bytes, repetitions,
            [&] { MPI_Allgather(small.data(), part, MPI_FLOAT, large.data(), part, MPI_FLOAT, MPI_COMM_WORLD); });
    measure("reduce_scatter", bytes, repetitions,
            [&] { MPI_Reduce_scatter_block(large.data(), small.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    const int whole = static_cast<int>(all);
    measure("all_reduce", bytes, repetitions,
            [&] { MPI_Allreduce(large.data(), sums.data(), whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    measure("broadcast", bytes, repetitions, [&] { MPI_Bcast(large.data(), whole, MPI_FLOAT, 0, MPI_COMM_WORLD); });
  }
  MPI_Finalize();
  return 0;
}
