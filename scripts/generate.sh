#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles every BPF object beside its source. With --check, compiles into a
# temporary folder and fails where the committed object differs.
#
# One compiler, named here, makes the committed bytes; what differs between
# architectures is found at load (CO-RE), so one object serves every
# little-endian architecture.
set -eu
cd "$(dirname "$0")/.."
CC=clang-22
STRIP=llvm-strip-22

check=
[ "${1:-}" != --check ] || check=yes

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# syscalls.h from syscalls.tsv: the classes by number, for both architectures.
awk -F '\t' '
	BEGIN {
		print "/* SPDX-License-Identifier: GPL-2.0-only */"
		print "/* Made by scripts/generate.sh from syscalls.tsv. */"
		arch[2] = "AMD64"; arch[3] = "ARM64"
	}
	/^#/ { next }
	{ for (i = 2; i <= 3; i++) if ($i != "-") line[i] = line[i] sprintf("\t[%d] = OP_%s, /* %s */ \\\n", $i, toupper($4), $1) }
	END { for (i = 2; i <= 3; i++) printf "#define SYSCALL_CLASSES_%s \\\n%s\n", arch[i], line[i] }
' probes/task/syscalls.tsv >"$out/syscalls.h"
if [ -n "$check" ]; then
	cmp -s "$out/syscalls.h" probes/task/syscalls.h || { echo "probes/task/syscalls.h is not what syscalls.tsv makes; run make generate" >&2; exit 1; }
else
	cp "$out/syscalls.h" probes/task/syscalls.h
fi

# The multiarch folder has asm/types.h; linux/bpf.h needs no more of it.
multiarch=/usr/include/$(gcc -print-multiarch 2>/dev/null || uname -m | sed 's/$/-linux-gnu/')

status=0
for source in $(find probes internal -name '*.bpf.c' | sort); do
	object=${source%.c}.o
	$CC -target bpfel -mcpu=v3 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-declarations \
		-fdebug-prefix-map="$PWD"=. -I probes/include -I "$multiarch" -c "$source" -o "$out/object"
	$STRIP -g "$out/object"
	if [ -z "$check" ]; then
		cmp -s "$out/object" "$object" || cp "$out/object" "$object"
	elif ! cmp -s "$out/object" "$object"; then
		echo "$object is not what $CC makes of $source; run make generate" >&2
		status=1
	fi
done
exit $status
