// SPDX-License-Identifier: Apache-2.0

// Package crash kills processes that record, at random moments and with
// SIGKILL, and lets the machine fail under them: full disks, disks that fail,
// endpoints that hang, agents that are replaced. What was acknowledged must be
// there afterwards, and what is missing must be told of.
//
// TestKilledAgent and TestKilledRecord kill the real binary, by default 200
// times in all; TestDisksThatFail, TestANetworkThatHangs and TestAnAgentIsReplaced
// run it on real file systems that are full, aborted, on a device that fails or
// frozen, behind a network that hangs, and while it is upgraded;
// TestTheRingIsTakenAway removes and unmounts what it records into;
// TestTheClockIsSet and TestTheMachineSleeps run it on a virtual machine of test/vm,
// whose clock is set and which is suspended to memory. TestKilledRing and TestKilledRecorder kill a process that puts
// ticks as fast as it can, as often. In -short mode it is 40 times;
// go test ./test/crash -kills 1000 kills more. Power cuts are simulated next to
// the code, by vfs.Mem.
package crash
