// The local rendezvous, through the agent's wrapper.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <string>
#include <thread>

#include "pliant/config.hpp"
#include "rendezvous/rendezvous.hpp"

namespace {

pliant::Rendezvous local() {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("pliant-rendezvous-" + std::to_string(::getpid()) + ".toml");
  std::ofstream(file) << "config_version = 1\n[rendezvous]\nuse = \"local\"\n";
  const pliant::ConfigNeeds needs{"rendezvous"};
  pliant::ConfigOverrides overrides;
  overrides.read_environment = false;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  const pliant::Config config = pliant::Config::open(file, needs, overrides);
  std::filesystem::remove(file);
  return pliant::or_throw(pliant::Rendezvous::open(config));
}

bool can_listen(const std::string& address, int32_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  const bool listens = ::inet_pton(AF_INET, address.c_str(), &at.sin_addr) == 1 &&
                       ::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0 && ::listen(fd, 1) == 0;
  ::close(fd);
  return listens;
}

}  // namespace

TEST_CASE("generations count from 1 and follow the workers that this node brings") {
  pliant::Rendezvous rendezvous = local();
  for (const int32_t workers : {4, 3, 0}) {
    const pliant::Generation made = pliant::or_throw(rendezvous.join("job", workers));
    CHECK(made.world_size == workers);
    CHECK(made.node_count == 1);
    CHECK(made.group_rank == 0);
    CHECK(made.first_rank == 0);
  }
  CHECK(pliant::or_throw(rendezvous.join("job", 1)).number == 4);
}

TEST_CASE("the master address is loopback and its port is free") {
  pliant::Rendezvous rendezvous = local();
  const pliant::Generation made = pliant::or_throw(rendezvous.join("job", 2));
  CHECK(made.master_addr == "127.0.0.1");
  CHECK(can_listen(made.master_addr, made.master_port));
}

TEST_CASE("watch waits for its time and reports no change") {
  pliant::Rendezvous rendezvous = local();
  CHECK(pliant::or_throw(rendezvous.watch(0)) == false);
  CHECK(pliant::or_throw(rendezvous.watch(1)) == false);
}

TEST_CASE("leave ends a running watch and every later call with aborted") {
  pliant::Rendezvous rendezvous = local();
  std::promise<void> watching;
  std::thread leaver([&] {
    watching.get_future().wait();
    rendezvous.leave();
  });
  watching.set_value();
  const pliant::Result<bool> watched = rendezvous.watch(-1);
  leaver.join();
  REQUIRE_FALSE(watched);
  CHECK(watched.error().status() == pliant::Status::kAborted);
  CHECK(watched.error().origin() == pliant::Origin::kRun);
  CHECK(watched.error().message().find("this node has left the rendezvous") != std::string::npos);
  CHECK(rendezvous.join("job", 1).error().status() == pliant::Status::kAborted);
  CHECK(rendezvous.watch(0).error().status() == pliant::Status::kAborted);
}

TEST_CASE("a negative number of workers is refused") {
  pliant::Rendezvous rendezvous = local();
  CHECK(rendezvous.join("job", -1).error().status() == pliant::Status::kInvalidArgument);
}
