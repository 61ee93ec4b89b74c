package proc

import (
	"bytes"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// statLine is what is used of /proc/<pid>/stat.
type statLine struct {
	pid     int
	name    string
	state   byte
	parent  int
	threads int
	start   uint64 // field 22, clock ticks since boot
}

// parseStat reads a /proc/<pid>/stat line. The name may hold anything, so the fields are counted from the last
// parenthesis: a process called "a) Z 1" would otherwise choose its own state and start.
func parseStat(b []byte) (statLine, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return statLine{}, false
	}
	s := statLine{name: string(b[open+1 : end])}
	var err error
	if s.pid, err = strconv.Atoi(string(bytes.TrimSpace(b[:open]))); err != nil {
		return statLine{}, false
	}
	n := 3
	for field := range bytes.FieldsSeq(b[end+1:]) {
		switch n {
		case 3:
			s.state = field[0]
		case 4:
			s.parent, err = strconv.Atoi(string(field))
		case 20:
			s.threads, err = strconv.Atoi(string(field))
		case 22:
			s.start, err = strconv.ParseUint(string(field), 10, 64)
		}
		if err != nil {
			return statLine{}, false
		}
		if n == 22 {
			return s, true
		}
		n++
	}
	return statLine{}, false
}

// statusFile is what is used of /proc/<pid>/status.
type statusFile struct {
	tgid  int   // 0: not there
	nspid []int // outermost first; nil: not there
}

// parseStatus reads a /proc/<pid>/status file. The kernel escapes line breaks in the name, so lines can be trusted.
func parseStatus(b []byte) statusFile {
	var s statusFile
	s.tgid, _ = strconv.Atoi(statusLine(b, "Tgid:"))
	for field := range strings.FieldsSeq(statusLine(b, "NSpid:")) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			s.nspid = nil
			break
		}
		s.nspid = append(s.nspid, pid)
	}
	return s
}

// statusLine returns what stands on the line with that key; empty when there is none.
func statusLine(b []byte, key string) string {
	_, value, found := bytes.Cut(b, []byte("\n"+key))
	if !found {
		return ""
	}
	value, _, _ = bytes.Cut(value, []byte("\n"))
	return string(bytes.TrimSpace(value))
}

// mount is one line of mountinfo.
type mount struct {
	id      int
	root    string // what of the file system is mounted
	point   string
	fsType  string
	options string // of the file system
}

func parseMounts(b []byte) []mount {
	var mounts []mount
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		id, err := strconv.Atoi(f[0])
		if err != nil {
			continue
		}
		mounts = append(mounts, mount{id, unescape(f[3]), unescape(f[4]), g[0], g[2]})
	}
	return mounts
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	for i := 0; i+3 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
			s = s[:i] + string([]byte{byte(n)}) + s[i+4:]
		}
	}
	return s
}

// parseLocks reads the flocks, and who waits for one, out of /proc/locks.
func parseLocks(b []byte) []FileLock {
	var locks []FileLock
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // 1: -> FLOCK ADVISORY WRITE 123 fe:00:42 0 EOF
		if len(f) < 2 {
			continue
		}
		f = f[1:]
		waiting := f[0] == "->"
		if waiting {
			f = f[1:]
		}
		if len(f) < 5 || f[0] != "FLOCK" {
			continue
		}
		pid, err := strconv.Atoi(f[3])
		file := strings.Split(f[4], ":")
		if err != nil || pid <= 0 || len(file) != 3 {
			continue
		}
		major, err1 := strconv.ParseUint(file[0], 16, 32)
		minor, err2 := strconv.ParseUint(file[1], 16, 32)
		ino, err3 := strconv.ParseUint(file[2], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		locks = append(locks, FileLock{
			PID: pid, Dev: unix.Mkdev(uint32(major), uint32(minor)), Ino: ino, Waiting: waiting,
		})
	}
	return locks
}

// fdInfo is what is used of /proc/<pid>/fdinfo/<fd>.
type fdInfo struct {
	ino    uint64
	hasIno bool // kernels before 5.14 do not say
	write  bool
	flock  bool
}

func parseFDInfo(b []byte) fdInfo {
	var info fdInfo
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "flags":
			flags, err := strconv.ParseUint(value, 8, 64)
			mode := flags & unix.O_ACCMODE
			info.write = err == nil && flags&unix.O_PATH == 0 && (mode == unix.O_WRONLY || mode == unix.O_RDWR)
		case "ino":
			var err error
			info.ino, err = strconv.ParseUint(value, 10, 64)
			info.hasIno = err == nil
		case "lock":
			info.flock = info.flock || strings.Contains(value, " FLOCK ")
		}
	}
	return info
}
