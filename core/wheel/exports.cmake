# Writes a version script: the main function of the command, and what object files take from elsewhere that has a name of ours.
# -DNM= -DOBJECTS=<file>[:<file>...] -DVERSION=<of the symbols> -DMAP=<file that is written>
string(REPLACE ":" ";" OBJECTS "${OBJECTS}")
execute_process(COMMAND ${NM} --undefined-only --format=posix ${OBJECTS} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_Z[A-Za-z0-9_]*6pliant[A-Za-z0-9_]*" names "${symbols}")
list(REMOVE_DUPLICATES names)
list(SORT names)
list(JOIN names ";\n    " names)
file(WRITE "${MAP}" "${VERSION} {\n  global:\n    ${names};\n    extern \"C++\" { \"pliant::cli::run_command_line(int, char**)\"; };\n  local:\n    *;\n};\n")
