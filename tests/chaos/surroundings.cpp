// Surroundings: namespaces, where a disk may be full and a network cut that are nobody else's.
#include "chaos/surroundings.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit/accelerator/machines.hpp"

namespace pliant::test {
namespace {

namespace fs = std::filesystem;

constexpr int kStruckMachine = 1;

void set_loopback(bool up) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = static_cast<short>(up ? IFF_UP | IFF_RUNNING : 0);
  ::ioctl(socket, SIOCSIFFLAGS, &request);
  ::close(socket);
}

}  // namespace

Surroundings::Surroundings(const Play& play) {
  try {
    make(play);
  } catch (const pliant_test::Refused& refused) {
    refused_ = refused.what();
  }
}

void Surroundings::make(const Play& play) {
  const fs::path runs = folder() / "pliant-runs";
  if (play.own_disk) {
    pliant_test::enter_own_namespaces(CLONE_NEWNS);
    fs::create_directory(runs);
    mounted_ = ::mount("none", runs.c_str(), "tmpfs", 0, "size=1m") == 0;
    if (!mounted_) throw pliant_test::Refused("no file system of its own");
  }
  if (play.own_network) {
    pliant_test::enter_own_namespaces(CLONE_NEWNET);
    set_loopback(true);
  }
  if (!play.machines) return;
  machines_ = std::make_unique<pliant_test::Machines>(2);
  for (int machine = 0; machine < 2; ++machine) machines_->rename_interface(machine, kCable);
}

Surroundings::~Surroundings() {
  if (mounted_) ::umount2((folder() / "pliant-runs").c_str(), MNT_DETACH);
}

std::string Surroundings::before_worker() const {
  if (!machines_) return "exec ";
  return fmt::format("case $RANK in 1|3) m={};; *) m={};; esac; exec nsenter --net=$m ",
                     machines_->network(kStruckMachine), machines_->network(0));
}

void Surroundings::fill_disk() const {
  const int fd = ::open((folder() / "pliant-runs" / "filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string piece(512, 'x');
  while (::write(fd, piece.data(), piece.size()) > 0) {
  }
  ::close(fd);
}

void Surroundings::free_disk() const {
  std::error_code ignored;
  fs::remove(folder() / "pliant-runs" / "filler", ignored);
}

void Surroundings::set_link(bool up) const {
  if (!machines_) return set_loopback(up);
  up ? pliant_test::Machines::plug_cable(kStruckMachine) : pliant_test::Machines::pull_cable(kStruckMachine);
}

}  // namespace pliant::test
