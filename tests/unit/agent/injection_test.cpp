// What `--inject` accepts, and what it says of everything else.
#include <doctest/doctest.h>

#include <string>

#include "pliant/error.hpp"
#include "pliant/job.hpp"

TEST_CASE("an injection names a rank, a step and a point") {
  const auto kill = pliant::parse_injection("kill:rank=2,step=20,at=reduce");
  CHECK_FALSE(kill.agent);
  CHECK(kill.rank == 2);
  CHECK(kill.step == 20);
  CHECK(kill.at == "reduce");
  CHECK(pliant::parse_injection("kill:rank=0,step=1").at == "forward");
  CHECK(pliant::parse_injection("kill:agent,step=3").agent);
  CHECK_FALSE(kill.leave);
  CHECK_FALSE(kill.stop);
  for (const char* point : {"gather", "scatter", "snapshot", "finish"}) {
    const auto stop = pliant::parse_injection(std::string("stop:rank=1,step=8,at=") + point);
    CHECK(stop.stop);
    CHECK(stop.rank == 1);
    CHECK(stop.at == point);
  }
  const auto leave = pliant::parse_injection("leave:rank=2,step=20");
  CHECK(leave.leave);
  CHECK(leave.rank == 2);
  CHECK(leave.step == 20);
}

TEST_CASE("a wrong injection is refused with its grammar") {
  for (const char* text :
       {"", "kill", "kill:", "kill:rank=1", "kill:step=1", "kill:rank=-1,step=1", "kill:rank=1,step=x",
        "kill:rank=1,agent,step=2", "kill:rank=1,step=2,at=lunch", "kill:agent,step=2,at=forward",
        "kill:agent,step=2,at=bucket", "stop:rank=1", "stop:agent,step=2", "halt:rank=1,step=2", "leave:rank=1",
        "leave:agent,step=2", "leave:rank=1,step=2,at=vote"}) {
    INFO(text);
    try {
      pliant::parse_injection(text);
      FAIL("accepted");
    } catch (const pliant::Error& error) {
      CHECK(error.origin() == pliant::Origin::kInput);
      CHECK(error.message().find("kill:rank=R,step=S") != std::string::npos);
    }
  }
}
