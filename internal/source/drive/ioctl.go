// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nvmeCommand is struct nvme_passthru_cmd (include/uapi/linux/nvme_ioctl.h).
type nvmeCommand struct {
	opcode, flags             uint8
	_                         uint16
	nsid, cdw2, cdw3          uint32
	metadata, addr            uint64
	metadataLen, dataLen      uint32
	cdw10, cdw11, cdw12       uint32
	cdw13, cdw14, cdw15       uint32
	timeoutMillis, completion uint32
}

// sgHeader is struct sg_io_hdr (include/scsi/sg.h).
type sgHeader struct {
	interfaceID, direction                  int32
	cmdLen, maxSense                        uint8
	iovecs                                  uint16
	dataLen                                 uint32
	data                                    unsafe.Pointer
	cmd, sense                              unsafe.Pointer
	timeoutMillis, flags                    uint32
	packID                                  int32
	user                                    unsafe.Pointer
	status, maskedStatus, message, senseLen uint8
	hostStatus, driverStatus                uint16
	resid                                   int32
	duration, info                          uint32
}

const (
	nvmeAdminIoctl = 0xc0484e41 // _IOWR('N', 0x41, struct nvme_passthru_cmd)
	sgIoctl        = 0x2285     // SG_IO

	getLogPage    = 0x02
	allNamespaces = 0xffffffff

	sgNoData   = -1
	sgFromDev  = -3
	atsCommand = 0x85 // ATA PASS-THROUGH (16)
)

// patient is how long the kernel waits for a SATA drive. It must be long: what
// the kernel does then is to reset the drive, and maybe all that share its
// cable. For the same reason NVMe commands are given the driver's own timeout.
// That a drive is slow to answer must never be worse for it than for its
// metrics.
const patient = 60_000

// caller makes the system calls; tests have another.
type caller interface {
	open(path string) (fd int, err error)
	// nvme is NVME_IOCTL_ADMIN_CMD; status is what the controller said.
	nvme(fd int, c *nvmeCommand) (status uint32, err error)
	sg(fd int, h *sgHeader) error
	close(fd int)
}

// device asks one drive for its health. The memory that drives write to is a
// part of it, and so never moves.
type device struct {
	caller
	path string
	sata bool

	page   [512]byte
	sense  [64]byte
	cdb    [16]byte
	header sgHeader
	nvme   nvmeCommand
}

// read asks the drive. It may take as long as the drive likes. The file is
// open only meanwhile, so that a drive can be taken out.
func (d *device) read() (h health, err error) {
	fd, err := d.open(d.path)
	if err != nil {
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (run as root)", err)
		}
		return h, fmt.Errorf("open %s: %w", d.path, err)
	}
	defer d.close(fd)
	if d.sata {
		h, err = d.readSATA(fd)
	} else {
		h, err = d.readNVMe(fd)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w (give the agent CAP_SYS_ADMIN and CAP_SYS_RAWIO)", err)
	}
	if err != nil {
		return health{}, fmt.Errorf("ask %s for its health: %w", d.path, err)
	}
	return h, nil
}

// readNVMe is Get Log Page of the controller's health.
func (d *device) readNVMe(fd int) (h health, err error) {
	clear(d.page[:])
	d.nvme = nvmeCommand{opcode: getLogPage, nsid: allNamespaces, addr: uint64(uintptr(unsafe.Pointer(&d.page))),
		dataLen: logHealthSize, cdw10: (logHealthSize/4-1)<<16 | logHealth}
	status, err := d.caller.nvme(fd, &d.nvme)
	runtime.KeepAlive(d)
	if err != nil {
		return h, err
	}
	if status != 0 {
		return h, fmt.Errorf("the controller answers with status %#x", status)
	}
	return parseNVMe(d.page[:])
}

// ATA commands and features (ACS-4).
const (
	checkPowerMode    = 0xe5
	smart             = 0xb0
	smartReadData     = 0xd0
	smartReturnStatus = 0xda
)

// readSATA asks a drive that is awake.
func (d *device) readSATA(fd int) (h health, err error) {
	r, err := d.ata(fd, checkPowerMode, 0, false)
	if err != nil {
		return h, err
	}
	// A drive that does not know the command says so, and is awake.
	if asleep := !r.failed() && r.asleep(); asleep {
		h.set(standby, 1)
		return h, nil
	}
	if _, err := d.ata(fd, smart, smartReadData, true); err != nil {
		return h, err
	}
	if h, err = parseSMART(d.page[:]); err != nil {
		return h, err
	}
	h.set(standby, 0)
	if r, err = d.ata(fd, smart, smartReturnStatus, false); err == nil && !r.failed() {
		if ok, known := r.well(); known {
			h.setIf(healthy, ok)
		}
	}
	return h, nil
}

// ata sends a command that reads a sector, or one that answers in registers.
func (d *device) ata(fd int, command, feature byte, data bool) (r registers, err error) {
	clear(d.sense[:])
	d.cdb = [16]byte{0: atsCommand, 1: 3 << 1, 2: 0x20, 4: feature, 14: command} // no data; ck_cond
	d.header = sgHeader{interfaceID: 'S', direction: sgNoData, cmdLen: 16, maxSense: uint8(len(d.sense)),
		cmd: unsafe.Pointer(&d.cdb), sense: unsafe.Pointer(&d.sense), timeoutMillis: patient}
	if data {
		clear(d.page[:])
		d.cdb[1], d.cdb[2], d.cdb[6] = 4<<1, 0x0e, 1 // PIO in; t_dir in, byt_blok, t_length in the count
		d.header.direction, d.header.dataLen, d.header.data = sgFromDev, smartSize, unsafe.Pointer(&d.page)
	}
	if command == smart {
		d.cdb[10], d.cdb[12] = 0x4f, 0xc2
	}
	if err := d.sg(fd, &d.header); err != nil {
		return r, err
	}
	if d.header.hostStatus != 0 {
		return r, fmt.Errorf("ATA command %#x: host adapter error %#x", command, d.header.hostStatus)
	}
	if data {
		if d.header.status != 0 || d.header.resid != 0 {
			return r, fmt.Errorf("ATA command %#x: status %#x, %d bytes missing", command, d.header.status, d.header.resid)
		}
		return r, nil
	}
	return parseSense(d.sense[:min(int(d.header.senseLen), len(d.sense))])
}

// kernel is the caller of the machine.
type kernel struct{}

func (kernel) open(path string) (int, error) {
	return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

func (kernel) nvme(fd int, c *nvmeCommand) (uint32, error) {
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), nvmeAdminIoctl, uintptr(unsafe.Pointer(c)))
	if errno != 0 {
		return 0, errno
	}
	return uint32(status), nil
}

func (kernel) sg(fd int, h *sgHeader) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), sgIoctl, uintptr(unsafe.Pointer(h))); errno != 0 {
		return errno
	}
	return nil
}

func (kernel) close(fd int) { unix.Close(fd) }
