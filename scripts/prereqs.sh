#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what a target needs, and only what is missing: prereqs.sh run|test.
# Needs root only when something has to be installed. Debian 12 and up, or an
# Ubuntu with the same packages.
set -eu
cd "$(dirname "$0")/.."

missing=
need() { # command package
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need_file() { # file package
	[ -e "$1" ] || missing="$missing $2"
}
as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
refreshed=
refresh() { # the package lists, once
	[ -n "$refreshed" ] || as_root apt-get update -qq
	refreshed=1
}
install_missing() {
	[ -n "$missing" ] || return 0
	echo "installing:$missing"
	refresh
	# shellcheck disable=SC2086
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
	missing=
}

go_is_new_enough() {
	command -v go >/dev/null 2>&1 || return 1
	v=$(go env GOVERSION | sed 's/^go//')
	[ "$(printf '%s\n1.26\n' "$v" | sort -V | head -n 1)" = 1.26 ]
}
if ! go_is_new_enough; then
	echo "prereqs: Go 1.26 or newer is needed and was not found." >&2
	echo "prereqs: install it from https://go.dev/dl/ and put it on PATH." >&2
	exit 1
fi

# unpack PACKAGE FILE: FILE of a Debian package at .cache/debs/FILE, without
# installing the package (prometheus would start a server, a kernel would go
# into the boot menu).
unpack() {
	[ ! -e ".cache/debs/$2" ] || return 0
	refresh
	mkdir -p .cache/debs .cache/download
	(cd .cache/download && apt-get -qq -o APT::Sandbox::User=root download "$1")
	dpkg -x .cache/download/"$1"_*.deb .cache/debs
	rm -r .cache/download
}

# modules TREE TO: the modules of an unpacked kernel package, uncompressed, in
# one folder.
modules() {
	mkdir -p "$2.part"
	find "$1/lib/modules" "$1/usr/lib/modules" -name '*.ko*' -exec mv -t "$2.part" {} + 2>/dev/null || true
	find "$2.part" -name '*.xz' -exec xz -d {} +
	mv "$2.part" "$2"
}

# keep NAME: the kernel of the packages in .cache/download as
# .cache/kernels/NAME, and its modules in NAME.modules.
keep() {
	for package in .cache/download/*.deb; do
		dpkg -x "$package" .cache/download/tree
	done
	mv .cache/download/tree/boot/vmlinuz-* ".cache/kernels/$1"
	modules .cache/download/tree ".cache/kernels/$1.modules"
	rm -r .cache/download
}

# kernel SERIES: Debian's newest cloud kernel of that series, as
# .cache/kernels/SERIES-amd64, and its modules in SERIES-amd64.modules.
kernel() {
	[ ! -e ".cache/kernels/$1-amd64.modules" ] || return 0
	refresh
	package=$(apt-cache search --names-only "^linux-image-$1[.].*-cloud-amd64\$" |
		cut -d ' ' -f 1 | grep -v unsigned | sort -V | tail -n 1)
	if [ -z "$package" ]; then
		echo "prereqs: no linux-image-$1.*-cloud-amd64 in the package lists; Debian 12 with its security archive has it" >&2
		exit 1
	fi
	mkdir -p .cache/kernels .cache/download
	(cd .cache/download && apt-get -qq -o APT::Sandbox::User=root download "$package")
	keep "$1-amd64"
}

# old_kernel SERIES MIRRORS (SHA256 PACKAGE)...: a kernel of a release that is
# older than the host's: the packages are named by their content, and taken from
# the first mirror that has them. A release that ends moves to another mirror.
old_kernel() {
	series=$1 mirrors=$2
	[ ! -e ".cache/kernels/$series-amd64.modules" ] || return 0
	rm -rf .cache/download
	mkdir -p .cache/kernels .cache/download
	shift 2
	while [ $# -gt 0 ]; do
		download "$1" "$2" "$mirrors"
		shift 2
	done
	keep "$series-amd64"
}

download() { # sha256 path mirrors
	for mirror in $3; do
		/usr/lib/apt/apt-helper -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 \
			download-file "http://$mirror/$2" ".cache/download/$(basename "$2")" "SHA256:$1" && return 0
	done
	echo "prereqs: none of $3 has $2" >&2
	exit 1
}

# kernel_arm64 SERIES: the same for arm64, with package lists of its own.
kernel_arm64() {
	[ ! -e ".cache/kernels/$1-arm64.modules" ] || return 0
	lists=$PWD/.cache/download/lists
	mkdir -p "$lists/partial" .cache/kernels
	apt_arm64() { apt-get -qq -o APT::Sandbox::User=root -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$lists" "$@"; }
	apt_arm64 update
	package=$(apt-cache -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$lists" \
		search --names-only "^linux-image-$1[.].*-cloud-arm64\$" | cut -d ' ' -f 1 | grep -v unsigned | sort -V | tail -n 1)
	(cd .cache/download && apt_arm64 download "$package")
	keep "$1-arm64"
}

# What makes the disks of the virtual machines, and unpacks their modules.
file_systems() {
	PATH=$PATH:/usr/sbin
	need mkfs.ext4 e2fsprogs
	need mkfs.xfs xfsprogs
	need mkfs.btrfs btrfs-progs
	need xz xz-utils
}

case "${1:-}" in
run)
	;;
generate)
	need clang-22 clang-22
	need llvm-strip-22 llvm-22
	need_file /usr/include/bpf/bpf_helpers.h libbpf-dev
	need_file /usr/include/linux/bpf.h linux-libc-dev
	install_missing
	;;
test)
	need gcc gcc # the race detector links with it
	need_file /usr/include/stdio.h libc6-dev
	need chromium chromium
	need setpriv util-linux
	install_missing
	unpack prometheus usr/bin/promtool
	"$0" generate
	"$0" kernels
	;;
kernels)
	need qemu-system-x86_64 qemu-system-x86
	file_systems
	install_missing
	# Of Debian 11 and Ubuntu 22.04, from the parts of the archives that do not change.
	old_kernel 5.10 "deb.debian.org/debian archive.debian.org/debian" \
		fb4a1229952d892138532c1d9f40a7fd0bd408e4dcf969c12e4524b6a89fdcb8 \
		pool/main/l/linux-signed-amd64/linux-image-5.10.0-32-cloud-amd64_5.10.223-1_amd64.deb
	old_kernel 5.15 "archive.ubuntu.com/ubuntu security.ubuntu.com/ubuntu old-releases.ubuntu.com/ubuntu" \
		ad56f8c442a54d4f5ff2dff010d00321d53e32b543f3a92f3ba4e042d20a71da \
		pool/main/l/linux-signed/linux-image-5.15.0-25-generic_5.15.0-25.25_amd64.deb \
		d0ba4087d9e1d497925b3481d3531fba6c2a852855f8019d73b0b1385aa4da1f \
		pool/main/l/linux/linux-modules-5.15.0-25-generic_5.15.0-25.25_amd64.deb
	kernel 6.1
	kernel 6.12
	;;
arm64)
	need qemu-system-aarch64 qemu-system-arm
	file_systems
	install_missing
	kernel_arm64 6.1
	;;
*)
	echo "usage: prereqs.sh run|generate|test|kernels|arm64" >&2
	exit 2
	;;
esac
