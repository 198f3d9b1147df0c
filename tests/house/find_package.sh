#!/bin/bash
# Installs into a folder, moves it, and builds a project outside with find_package: shared, static, and mpi if it was
# built. What is not there is refused with a sentence. Then a project takes the sources in.
#     find_package.sh BUILD_DIR SOURCE_DIR VERSION
set -euo pipefail
build=$1
source=$2
version=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR='' cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/second" # no file may depend on the folder where it was installed

# The mpi link is used with the MPI that it was built with.
mpicc=$(sed -n 's/^MPI_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")

# What docs/c.md says a project needs.
sed -n '/^```cmake/,/^```$/{/^```/!p}' "$source/docs/c.md" >"$work/page.cmake"
[ -s "$work/page.cmake" ]

# All projects are one folder, because CMake takes seconds to look at a compiler. -U makes it forget what else it found.
configure() { # COMPONENT VERSION
    cmake -S "$source/tests/house/outside" -B "$work/outside" -U 'gradwire_*' -U 'MPI*' \
        -DCMAKE_PREFIX_PATH="$work/second" -DGW_PAGE="$work/page.cmake" -DMPI_C_COMPILER="$mpicc" \
        -DGW_COMPONENT="$1" -DGW_VERSION="$2" >"$work/said" 2>&1
}
program=$work/outside/program

components=(page shared static)
if [ -f "$build/gradwire-mpi.pc" ]; then
    components+=(mpi mpi_static)
fi
for component in "${components[@]}"; do
    configure "$component" "$version" || { cat "$work/said"; exit 1; }
    cmake --build "$work/outside" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
    said=$("$program")
    echo "$component: $said"
    [ "$said" = "gradwire $version" ] || { echo "expected gradwire $version"; exit 1; }
    linked=$(ldd "$program")
    if [[ $component == *static ]]; then
        ! grep libgradwire <<<"$linked" || { echo "a program of gradwire::$component needs a shared library"; exit 1; }
    else
        grep -q "libgradwire.so.* => $work/second/" <<<"$linked" || { echo "$linked"; exit 1; }
    fi
done

refused() { # PATTERN COMPONENT VERSION
    if configure "$2" "$3"; then
        echo "component $2, version $3: taken, and should be refused"
        exit 1
    fi
    # CMake may break lines anywhere.
    if ! tr -s ' \n' ' ' <"$work/said" | grep -qE "$1"; then
        echo "component $2, version $3: expected to read '$1' in"
        cat "$work/said"
        exit 1
    fi
    echo "refused: component $2, version $3"
}
refused "gradwire has no component 'cuda'; it has shared, static, mpi and mpi_static" cuda "$version"
for newer in "${version%%.*}.99" 99.0; do
    refused "compatible with requested version \"$newer\".*gradwireConfig.cmake, version: $version" shared "$newer"
done
if [ -f "$build/gradwire-mpi.pc" ]; then
    built=$(sed -n 's/^Description: .*(\(.*\))$/\1/p' "$build/gradwire-mpi.pc")
    case $built in
        OpenMPI) other=mpich ;;
        *) other=openmpi ;;
    esac
    if mpicc=$(command -v "mpicc.$other"); then
        refused "gradwire's component 'mpi' was built with $built, and CMake found" mpi "$version"
    else
        echo "left out: the refusal of another MPI, as mpicc.$other is not installed"
    fi
fi
find "$work/second" -name "gradwire-*static*.cmake" -delete
refused "gradwire's component 'static' is not installed" static "$version"

# A project that takes the sources in builds the library beside its own programs, and installs nothing of it.
cmake -S "$source/tests/house/outside" -B "$work/outside" -U 'MPI*' -DGW_SOURCES="$source" \
    -DCMAKE_BUILD_TYPE=Release -DGW_MPI=off >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
cmake --build "$work/outside" -j 2 >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
for program in program program_static; do
    [ "$("$work/outside/$program")" = "gradwire $version" ] || { echo "$program of the sources fails"; exit 1; }
done
! grep -rhE -- '-Wshadow' "$work/outside/CMakeFiles/program_static.dir" || { echo "they have our flags"; exit 1; }
cmake --install "$work/outside" --prefix "$work/nothing" >/dev/null
[ ! -e "$work/nothing" ] || { echo "a project that takes the sources in installs them"; exit 1; }
echo "the sources in another project: $("$work/outside/program")"
