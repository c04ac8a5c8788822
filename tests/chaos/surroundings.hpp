// Surroundings: the folder, the disk and the network of a job.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "chaos/blow.hpp"
#include "scratch_folder.hpp"

namespace pliant_test {
class Machines;
}

namespace pliant::test {

class Surroundings {
 public:
  /// As the play wants them. This process changes namespaces for them, and so must have one thread and live no longer
  /// than the job.
  explicit Surroundings(const Play& play);
  ~Surroundings();
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

  /// Why they are not to be had here; "" when they are.
  [[nodiscard]] const std::string& refused() const { return refused_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  /// The shell's words before a worker's program, such as those that bring it to its machine.
  [[nodiscard]] std::string before_worker() const;

  void fill_disk() const;
  void free_disk() const;
  void set_link(bool up) const;

 private:
  void make(const Play& play);

  ScratchFolder folder_;
  std::unique_ptr<pliant_test::Machines> machines_;
  bool mounted_ = false;
  std::string refused_;
};

}  // namespace pliant::test
