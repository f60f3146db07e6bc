# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the other scripts share; sourced, not run.
#   root              the project's folder, and the current one
#   setup [PROGRAM…]  finds a JDK 25, Maven and a C compiler, and the programs named; installs Debian packages when root
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

# The Debian package that brings a program.
package_of() {
    case $1 in
        cc | gcc) echo gcc libc6-dev ;;
        mvn) echo maven ;;
        *) echo "$1" ;;
    esac
}

# Installs the package of a program that is missing. False, with a line that says so, where that cannot be done.
provide() {
    local packages
    command -v "$1" > /dev/null && return
    packages=$(package_of "$1")
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        say "installing $packages"
        # shellcheck disable=SC2086 # several packages
        if apt-get update -qq > /dev/null && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends $packages > /dev/null; then
            command -v "$1" > /dev/null && return
        fi
    fi
    say "no '$1' here, and it could not be installed; install $packages (Debian: apt-get install $packages)" >&2
    return 1
}

setup() {
    [ "$(uname -s)" = Linux ] || die "needs Linux: the waiting is built on the futex"
    find_jdk
    local program
    for program in cc mvn "$@"; do
        provide "$program" || exit 2
    done
    provide cargo || say "going on without the Rust peer"
    export MAVEN_OPTS="${MAVEN_OPTS:-} --sun-misc-unsafe-memory-access=allow --enable-native-access=ALL-UNNAMED"
}

maven() { mvn -B -q -Dstyle.color=never "$@"; }

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
