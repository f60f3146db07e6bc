# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the other scripts share; sourced, not run.
#   root              the project's folder, and the current one
#   arguments …       answers --help and refuses arguments that the script does not know
#   setup [PROGRAM…]  finds a JDK 25, Maven, a C compiler, and, if they can be had, cargo and the programs named;
#                     installs Debian packages when root
#   build             compiles everything, without tests
#   fermata_java …    java with the jar as module dev.fermata, and test classes and libraries on the class path
#   test_class_path   everything on the class path; after build

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { echo "$(basename "$0"): $*"; }

die() {
    say "$*" >&2
    exit 2
}

# Prints the comment at the head of the script for --help, and ends with code 2 at an argument that is not among those
# listed: flags, and options with the values that they take, such as "--mode mutex|spin", "--rounds 0|N" (N is a number
# from 1 on), "--mixed [N]" (it may be left out) or "--output FILE" (anything). "--mode=spin" is the same as
# "--mode spin".
arguments() { # OPTION… -- ARGUMENT…
    local -A values=()
    local option value pattern expected
    while [ "$1" != -- ]; do
        option=${1%% *}
        values[$option]=${1#"$option"}
        shift
    done
    shift
    while [ $# -gt 0 ]; do
        option=${1%%=*}
        if [ "$option" = --help ] || [ "$option" = -h ]; then
            sed -n '4,/^[^#]/s/^# \{0,1\}//p' "scripts/$(basename "$0")"
            exit 0
        fi
        [ -n "$option" ] && [ -v "values[$option]" ] || die "does not know '$1'; see --help"
        value=${values[$option]# }
        if [ -z "$value" ]; then
            [ "$1" = "$option" ] || die "$option takes no value, found '$1'; see --help"
        elif [ "$value" = "[N]" ] && [ "$1" = "$option" ] && [[ ${2:---} = --* ]]; then
            : # left out
        else
            value=${value//[\[\]]/}
            expected=${value/N/a number from 1 on}
            expected=${expected//|/ or }
            if [ "$1" = "$option" ]; then
                [ $# -gt 1 ] || die "$option needs a value, $expected; see --help"
                shift
            fi
            case $value in
                FILE | REGEX) pattern=.+ ;;
                *) pattern=${value//N/[1-9][0-9]{0,8\}} ;;
            esac
            [[ ${1#"$option="} =~ ^($pattern)$ ]] || die "$option is '${1#"$option="}', expected $expected; see --help"
        fi
        shift
    done
}

# A JDK (javac, not only java) of version 25 or later under JAVA_HOME, on the PATH, or in /usr/lib/jvm.
find_jdk() {
    local on_path candidate version seen=()
    on_path=$(command -v java || true)
    for candidate in "${JAVA_HOME:-}" "${on_path:+$(dirname "$(dirname "$(readlink -f "$on_path")")")}" /usr/lib/jvm/*; do
        [ -x "$candidate/bin/javac" ] && [ -r "$candidate/release" ] || continue
        version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$candidate/release")
        if [ "${version:-0}" -ge 25 ]; then
            export JAVA_HOME=$candidate
            return
        fi
        seen+=("$candidate ($version)")
    done
    die "needs a JDK 25 or later under JAVA_HOME, on the PATH or in /usr/lib/jvm; found: ${seen[*]:-none}." \
        "Install one, for example Eclipse Temurin's package temurin-25-jdk, or unpack one and set JAVA_HOME."
}

# The Debian packages that bring programs.
packages_of() { # PROGRAM…
    local program
    for program in "$@"; do
        case $program in
            cc | gcc) echo gcc libc6-dev ;;
            mvn) echo maven ;;
            *) basename "$program" ;;
        esac
    done | paste -sd ' '
}

# Those that are not on the PATH, in a line.
absent() { # PROGRAM…
    local program
    for program in "$@"; do
        command -v "$program" > /dev/null || echo "$program"
    done | paste -sd ' '
}

# Installs what is missing, where that can be done, and says in one line what is missing still.
provide() { # PROGRAM…
    local missing packages could_not=
    missing=$(absent "$@")
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086 # several words, here and below
    packages=$(packages_of $missing)
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        say "installing $packages"
        # shellcheck disable=SC2086
        if apt-get update -qq > /dev/null && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends $packages > /dev/null; then
            missing=$(absent "$@")
        fi
        [ -n "$missing" ] || return 0
        could_not=", and could not be installed"
    fi
    say "not here$could_not: $missing (Debian: apt-get install $packages)" >&2
}

setup() { # PROGRAM…
    [ "$(uname -s)" = Linux ] || die "needs Linux: the waiting is built on the futex"
    find_jdk
    local required=("${CC:-cc}" mvn) missing
    provide "${required[@]}" cargo "$@"
    missing=$(absent "${required[@]}")
    [ -z "$missing" ] || die "cannot go on without $missing"
    [ -z "$(absent cargo)" ] || say "going on without the Rust peer"
    export MAVEN_OPTS="${MAVEN_OPTS:-} --sun-misc-unsafe-memory-access=allow --enable-native-access=ALL-UNNAMED"
}

# Without color; Debian's Maven resets it all the same, on both streams.
maven() { mvn -B -q -Dstyle.color=never "$@" 2>&1 | sed -u 's/\x1b\[[0-9;]*m//g'; }

build() {
    say "building with $JAVA_HOME (the first time Maven fetches its plugins)"
    maven -DskipTests -Dmaven.javadoc.skip -Dmaven.source.skip package
    test_class_path=$(absolute_class_path)
}

absolute_class_path() { echo "$root/target/classes:$root/target/test-classes:$(cat "$root/target/test-class-path.txt")"; }

fermata_java() {
    "$JAVA_HOME/bin/java" --module-path target/fermata-*-SNAPSHOT.jar --add-modules dev.fermata \
        --enable-native-access=dev.fermata -Dfermata.peers=target/peers \
        -cp "target/test-classes:$(cat target/test-class-path.txt)" "$@"
}

# Runs jcstress. Its last line says "N planned; N passed, N failed, …"; nothing is passed if nothing was planned.
jcstress() { # PLANNED SECONDS OPTION…
    local planned=$1 seconds=$2 results=$root/target/jcstress
    shift 2
    mkdir -p "$results"
    (cd "$results" && timeout "$seconds" "$JAVA_HOME/bin/java" -cp "$(absolute_class_path)" \
        org.openjdk.jcstress.Main -r "$results" -sc false -jvmArgsPrepend "--enable-native-access=ALL-UNNAMED" "$@" \
        > log.txt 2>&1) || true
    grep -oE '\(Results: .*\)' "$results/log.txt" | tail -1
    if ! grep -qE "\(Results: $planned planned; $planned passed, 0 failed, 0 soft errs, 0 hard errs\)" \
        "$results/log.txt"; then
        tail -60 "$results/log.txt"
        return 1
    fi
}
