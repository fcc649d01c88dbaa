#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Bundles the page: internal/web/page with the vendored uPlot into
# internal/web/dist, which is committed and embedded. --check fails where the
# committed files differ; --types checks the types too, which needs node.
set -eu
cd "$(dirname "$0")/.."
TYPESCRIPT=7.0.2

if [ "${1:-}" = --types ]; then
	[ -e .cache/typescript/node_modules ] ||
		npm install --silent --no-save --prefix .cache/typescript "typescript@$TYPESCRIPT"
	exec .cache/typescript/node_modules/.bin/tsc -p internal/web/page
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
go tool -modfile=tools/go.mod esbuild internal/web/page/main.ts internal/web/page/page.css --bundle --minify --target=es2022 \
	--legal-comments=inline --outdir="$out" --log-level=warning
mv "$out/main.js" "$out/page.js"
cp internal/web/page/index.html "$out/"
for file in index.html page.js page.css; do
	if [ "${1:-}" != --check ]; then
		cp "$out/$file" internal/web/dist/
	elif ! cmp -s "$out/$file" "internal/web/dist/$file"; then
		echo "internal/web/dist/$file is not what its sources make; run make generate" >&2
		exit 1
	fi
done
