// SPDX-License-Identifier: Apache-2.0

// Package arch holds the rules of the house as tests: which package may
// import which, licences, documentation, and the length of files and
// functions. It has no code of its own.
package arch
