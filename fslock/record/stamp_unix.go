//go:build unix

package record

import "golang.org/x/sys/unix"

// StampOf returns the stamp of whatever is at path; a link is not followed. Its errors are the system's.
func StampOf(path string) (Stamp, error) {
	var st unix.Stat_t
	if _, err := retry(func() (int, error) { return 0, unix.Lstat(path, &st) }); err != nil {
		return Stamp{}, err
	}
	return stampOf(&st), nil
}

func stampOf(st *unix.Stat_t) Stamp {
	return Stamp{
		Dev: widen(st.Dev), Ino: widen(st.Ino), Mode: fileMode(uint32(widen(st.Mode))),
		size: st.Size, modified: st.Mtim.Nano(), changed: st.Ctim.Nano(),
	}
}
