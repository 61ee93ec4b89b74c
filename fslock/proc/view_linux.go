package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hidesOthers says whether our /proc may keep processes from us. Doubt is yes: what is believed to be all decides
// over a living holder.
func hidesOthers() bool {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	options, ok := procOptions(parseMounts(b))
	if !ok {
		return true
	}
	return hides(options, inGroup)
}

// hides reads the mount options of /proc. The capability to trace would let us see as well, but not everybody: the
// kernel refuses it in more cases than can be asked for. Only the group that is named, or root's, surely sees all.
func hides(options string, inGroup func(gid int) bool) bool {
	mode, gid := "off", 0
	for option := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "hidepid":
			mode = value
		case "gid":
			var err error
			if gid, err = strconv.Atoi(value); err != nil {
				return true
			}
		}
	}
	switch mode {
	case "off", "0":
		return false
	case "noaccess", "1", "invisible", "2":
		return !inGroup(gid)
	default:
		return true
	}
}

// procOptions returns the options of the /proc that we see: of several mounted over one another, the upper one.
func procOptions(mounts []mount) (string, bool) {
	fd, err := unix.Open("/proc", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(b)) {
		value, ok := strings.CutPrefix(line, "mnt_id:")
		if !ok {
			continue
		}
		id, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return "", false
		}
		for _, m := range mounts {
			if m.id == id {
				return m.options, m.fsType == "proc"
			}
		}
	}
	return "", false
}

// inGroup says whether we are in the group that hidepid lets see everything.
func inGroup(gid int) bool {
	groups, err := os.Getgroups()
	return os.Getegid() == gid || err == nil && slices.Contains(groups, gid)
}

// freezer is one mounted cgroup hierarchy that can freeze.
type freezer struct {
	unified     bool
	root, point string
}

func findFreezers(mounts []mount) []freezer {
	var freezers []freezer
	for _, m := range mounts {
		unified := m.fsType == "cgroup2"
		if unified || m.fsType == "cgroup" && slices.Contains(strings.Split(m.options, ","), "freezer") {
			freezers = append(freezers, freezer{unified, m.root, m.point})
		}
	}
	return freezers
}

// Frozen reads the state that a cgroup has by itself or from those above it. One that is only about to freeze, since
// one of its processes cannot be stopped yet, counts as frozen in the first version of cgroups and not in the second.
func (l *linux) Frozen(pid int) bool {
	if len(l.freezers) == 0 {
		return false
	}
	var buf [4096]byte
	b, err := readFile(procPath(pid, "cgroup"), buf[:])
	if err != nil {
		return false
	}
	var state [512]byte
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasSuffix(line, ":/") {
			continue // the root cannot be frozen
		}
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		unified := parts[1] == ""
		if !unified && !slices.Contains(strings.Split(parts[1], ","), "freezer") {
			continue
		}
		for _, f := range l.freezers {
			below, ok := f.below(parts[2])
			if f.unified != unified || !ok {
				continue
			}
			name := "freezer.state"
			if unified {
				name = "cgroup.events"
			}
			b, err := readFile(filepath.Join(f.point, below, name), state[:])
			if err == nil && (unified && bytes.Contains(b, []byte("frozen 1")) ||
				!unified && (bytes.HasPrefix(b, []byte("FROZEN")) || bytes.HasPrefix(b, []byte("FREEZING")))) {
				return true
			}
		}
	}
	return false
}

// below returns where a cgroup lies under the mount, if it does.
func (f freezer) below(path string) (string, bool) {
	if strings.HasPrefix(path, "/..") {
		return "", false
	}
	if f.root == "/" {
		return path, true
	}
	rest, ok := strings.CutPrefix(path, f.root)
	return rest, ok && (rest == "" || rest[0] == '/')
}
