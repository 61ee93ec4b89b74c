package watch

import (
	"errors"
	"io/fs"
	"path/filepath"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// unchanged reports whether the files that an entry was made of are those that were read, told by their times and
// numbers alone. What could not be read is never told so: why may have gone. Nor is it asked whether processes are
// still what they were. alone says that the directory is unchanged, so that no file has come or gone.
func unchanged(e *Entry, alone bool) bool {
	switch f := e.Subject.(type) {
	case *verdict.LeaseFacts:
		return holds(&f.Seen) && f.Counter.Problem == nil && f.Counter.Stamp.Holds(f.Counter.Path, f.Look) &&
			(alone || sameFlock(f))
	case *verdict.LockFacts:
		switch {
		case !holds(&f.Seen):
			return false
		case f.Token != nil:
			return holds(&f.Token.Seen)
		default:
			dir, name := filepath.Split(f.Path)
			return alone || record.Stamp{}.Holds(dir+record.TokenName(name), f.Look)
		}
	case *verdict.TokenFacts:
		return holds(&f.Seen)
	case *verdict.TempFacts:
		return holds(&f.Seen)
	default:
		return false
	}
}

func holds(s *verdict.Seen) bool { return s.Problem == nil && s.Stamp.Holds(s.Path, s.Look) }

// sameFlock reports whether the flock file of a lease is the one that was seen; nothing in it counts.
func sameFlock(f *verdict.LeaseFacts) bool {
	st, err := record.StampOf(flockOf(f))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.Flock == record.Stamp{}
	default:
		return err == nil && f.Section == nil && st.Dev == f.Flock.Dev && st.Ino == f.Flock.Ino && st.Mode == f.Flock.Mode
	}
}

func flockOf(f *verdict.LeaseFacts) string { return filepath.Join(filepath.Dir(f.Path), f.ID+".lock") }
