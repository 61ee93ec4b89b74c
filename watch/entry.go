package watch

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/fslock/verdict"
)

// Judge is the verdict at now: time alone turns one into another between two looks. An entry whose place cannot be looked
// at stays as it was when it was seen last, for nobody knows what time has done to it.
func (e *Entry) Judge(now time.Time) verdict.Verdict {
	switch {
	case e.Subject == nil:
		return e.Verdict
	case !e.Unseen.IsZero():
		v := e.Subject.Judge(e.Unseen)
		v.Changes = time.Time{}
		return v
	default:
		return e.Subject.Judge(now)
	}
}

// Holder is whom the record names; nil: nobody, or not readable.
func (e *Entry) Holder() *verdict.Holder {
	if e.Subject == nil {
		return nil
	}
	return e.Subject.Holder()
}

// PID is the process that the entry names, by the pid under which it is seen from here where that is known: a record made
// in another pid namespace tells a number that somebody else may have here. 0: none is named.
func (e *Entry) PID() int {
	seen := e.Seen()
	switch {
	case seen == nil:
		if h := e.Holder(); h != nil {
			return int(h.PID)
		}
		return 0
	case seen.Missing || seen.Proc.PID == 0:
		return recorded(e.Subject)
	default:
		return seen.Proc.PID
	}
}

// Seen is what a look found at the entry's path; nil for a subject of another make.
func (e *Entry) Seen() *verdict.Seen {
	switch f := e.Subject.(type) {
	case *verdict.LeaseFacts:
		return &f.Seen
	case *verdict.LockFacts:
		return &f.Seen
	case *verdict.TokenFacts:
		return &f.Seen
	case *verdict.TempFacts:
		return &f.Seen
	default:
		return nil
	}
}

// Beat is when the holder was last heard of, or when a file that cannot be read was last written; zero: never.
func (e *Entry) Beat() time.Time {
	switch seen := e.Seen(); {
	case seen == nil || seen.Missing:
	case seen.Problem != nil:
		return seen.File.ModTime
	case !seen.Beat.IsZero():
		return seen.Beat
	}
	if h := e.Holder(); h != nil {
		return h.Renewed
	}
	return time.Time{}
}

// Held is how long the holder has had it at now; 0: unknown, or nobody.
func (e *Entry) Held(now time.Time) time.Duration {
	if h := e.Holder(); h != nil && !h.Acquired.IsZero() {
		return verdict.Age(h.Acquired, now)
	}
	return 0
}

// Place is where the entry is within its root: the id of a lease, else the path. It is not made safe.
func (e *Entry) Place() string {
	if e.ID != "" {
		return e.ID
	}
	if rest, ok := strings.CutPrefix(e.Path, e.Root); ok {
		if rest = strings.TrimLeft(rest, string(filepath.Separator)); rest != "" {
			return rest
		}
	}
	return filepath.Base(e.Path)
}

// Title is what the entry is called: the name that a person knows, and its place. It is not made safe.
func (e *Entry) Title() string {
	place := e.Place()
	if e.Name == "" || e.Name == place {
		return place
	}
	return e.Name + " " + place
}

// IsProblem reports whether the entry is worth a question: it shows more than a healthy holder, a far one, or
// nobody would. A temp file harms nobody.
func (e *Entry) IsProblem() bool {
	switch v := &e.Verdict; v.State {
	case verdict.Live, verdict.Remote, verdict.Free, verdict.Alive, verdict.InUse, verdict.Litter:
		return v.Stuck || v.Flags&(verdict.EpochFlag|verdict.Clock) != 0
	default:
		return true
	}
}

// Urgency orders entries by how much they want to be looked at: what is blocked first, what is free last.
func (e *Entry) Urgency() int {
	if e.Verdict.Flags.Has(verdict.IsBlocked) {
		return -1
	}
	order := [...]verdict.State{
		verdict.Unreadable, verdict.Malformed, verdict.Dead, verdict.Expired, verdict.Stopped, verdict.Unknown,
		verdict.Late, verdict.Remote, verdict.Live, verdict.Alive, verdict.InUse, verdict.Litter, verdict.Free,
	}
	return slices.Index(order[:], e.Verdict.State)
}

// SortByUrgency sorts entries by urgency, then by title and path.
func SortByUrgency(entries []*Entry) {
	slices.SortStableFunc(entries, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.Urgency(), b.Urgency()), cmp.Compare(a.Title(), b.Title()), cmp.Compare(a.Path, b.Path))
	})
}
