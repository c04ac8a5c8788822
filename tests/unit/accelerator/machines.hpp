// Several machines in one: network namespaces, each with a cable to a switch that a test can pull and plug.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "own_namespaces.hpp"

namespace pliant_test {

class Machines {
 public:
  /// Makes this process the switch, in namespaces of its own. Throws Refused where users may have none, or there is no
  /// `ip`.
  explicit Machines(int32_t count) {
    enter_own_namespaces(CLONE_NEWNET);
    switch_ = this_network();
    run("ip link add switch type bridge && ip link set switch up");
    for (int32_t m = 0; m < count; ++m) {
      if (::unshare(CLONE_NEWNET) != 0) throw Refused(std::string("unshare: ") + std::strerror(errno));
      networks_.push_back(this_network());
      run("ip link set lo up");
      be_in(switch_);
      const std::string there = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(networks_.back());
      run("ip link add " + port(m) + " type veth peer name " + interface(m) + " netns " + there + " && ip link set " +
          port(m) + " master switch up");
      be_in(networks_.back());
      run("ip addr add " + address(m) + "/24 dev " + interface(m) + " && ip -6 addr add " + address6(m) + "/64 dev " +
          interface(m) + " nodad && ip link set " + interface(m) + " up");
      be_in(switch_);
    }
  }
  ~Machines() {
    for (const int network : networks_) ::close(network);
    ::close(switch_);
  }
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  /// A machine's interface: named differently on each.
  static std::string interface(int32_t machine) { return "fabric" + std::to_string(machine); }
  static std::string address(int32_t machine) { return "10.77.0." + std::to_string(machine + 1); }
  static std::string address6(int32_t machine) { return "fd77::" + std::to_string(machine + 1); }

  /// What nsenter takes to run a program there, while this object lives.
  [[nodiscard]] std::string network(int32_t machine) const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(networks_[static_cast<size_t>(machine)]);
  }
  /// Gives the machine's interface another name; its address of IPv4 stays.
  void rename_interface(int32_t machine, const std::string& name) const {
    be_in(networks_[static_cast<size_t>(machine)]);
    const std::string old = interface(machine);
    run("ip link set " + old + " down && ip link set " + old + " name " + name + " && ip link set " + name + " up");
    be_in(switch_);
  }
  /// This process, which must have one thread only, is on that machine from now on.
  void enter(int32_t machine) const { be_in(networks_[static_cast<size_t>(machine)]); }
  /// By the switch only. What is on its way is lost, and nobody is told.
  static void pull_cable(int32_t machine) { run("ip link set " + port(machine) + " nomaster"); }
  static void plug_cable(int32_t machine) { run("ip link set " + port(machine) + " master switch"); }
  /// From all others for which this was called; the rest still reach it.
  static void isolate(int32_t machine) { run("ip link set " + port(machine) + " type bridge_slave isolated on"); }

 private:
  static std::string port(int32_t machine) { return "port" + std::to_string(machine); }
  static int this_network() { return ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }
  static void be_in(int network) {
    if (::setns(network, CLONE_NEWNET) != 0) throw std::runtime_error(std::string("setns: ") + std::strerror(errno));
  }
  static void run(const std::string& command) {
    FILE* const words = ::popen(("( " + command + " ) 2>&1").c_str(), "r");
    if (words == nullptr) throw Refused(std::string("popen: ") + std::strerror(errno));
    std::string said;
    for (int c = 0; (c = std::fgetc(words)) != EOF;) said += static_cast<char>(c);
    const int status = ::pclose(words);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) throw Refused("there is no ip (package iproute2)");
    if (status != 0) throw std::runtime_error(command + ": " + said);
  }

  int switch_ = -1;
  std::vector<int> networks_;
};

}  // namespace pliant_test
