# The parts of Pliant that need something a machine may lack. A part that is left out is named with the reason, at configure
# time and in <build>/parts-left-out.txt, which scripts/quickstart shows again at the end.

# pliant_left_out(<part> <reason>): notes that a part is not built, in words for the person who builds.
function(pliant_left_out part reason)
  set_property(GLOBAL APPEND PROPERTY PLIANT_PARTS_LEFT_OUT "${part}: ${reason}")
endfunction()

# pliant_report_parts(): call once, when every folder was read.
function(pliant_report_parts)
  if(NOT PLIANT_TESTS)
    pliant_left_out("tests" "PLIANT_TESTS is OFF")
  endif()
  get_property(lines GLOBAL PROPERTY PLIANT_PARTS_LEFT_OUT)
  list(JOIN lines "\n" text)
  if(lines)
    string(APPEND text "\n")
    foreach(line IN LISTS lines)
      message(STATUS "left out: ${line}")
    endforeach()
  endif()
  file(WRITE "${PROJECT_BINARY_DIR}/parts-left-out.txt" "${text}")
endfunction()
