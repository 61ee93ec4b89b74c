package watch

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"holdfast/fslock/verdict"
)

// The events of a Change.
const (
	Appeared = "appeared" // an entry that was not there
	Changed  = "changed"  // its state, cause, claimability, flags, epoch or token changed
	Taken    = "taken"    // somebody else holds it now: another nonce, or another process where none is recorded
	Gone     = "gone"     // an entry that is not there any more, and not merely out of sight
	Renewed  = "renewed"  // nothing but the beat moved
	Watch    = "watch"    // a root or how it is watched changed, or a place's error came or went
)

// Change is what happened to one entry, or to one root or place, between two snapshots.
type Change struct {
	Time  time.Time // of the newer snapshot
	Event string    // one of the constants above
	Kind  Kind      // zero for Watch
	Root  string
	Path  string
	ID    string // leases
	// From and To are the states before and after. They say nothing where there was no entry: From of Appeared, To
	// of Gone, both of Watch.
	From, To verdict.State
	Cause    string // of the state after
	Sentence string // for a person
	// Holder is who holds it now; for Gone, who held it. Nil: nobody, or not readable.
	Holder *verdict.Holder
	PID    int // of that holder, as Entry.PID tells it
	// Entry is the entry of the newer snapshot; for Gone, of the older one. Nil for Watch. Whoever keeps it keeps all
	// that was read of it.
	Entry *Entry
}

// Diff tells what changed from one snapshot to the next: roots first, then entries in the order of the newer
// snapshot, then what is gone. Two looks at the same things differ in nothing, however much time is between them,
// unless time itself changed a verdict; who waits, and what of it is hidden, is no change of an entry. A nil
// snapshot has no roots and no entries.
func Diff(older, newer *Snapshot) []Change {
	if older == nil {
		older = &Snapshot{}
	}
	if newer == nil {
		newer = &Snapshot{Time: older.Time}
	}
	changes := append(diffRoots(older, newer), diffErrors(older, newer)...)
	differing(older.Entries, newer.Entries, func(was, e *Entry) {
		switch {
		case e != nil:
			if event := eventOf(was, e); event != "" {
				changes = append(changes, changeOf(newer.Time, event, was, e))
			}
		case !outOfSight(newer.Errors, was.Path):
			c := changeOf(newer.Time, Gone, was, was)
			c.To, c.Cause, c.Sentence = 0, "", goneSentence(was)
			changes = append(changes, c)
		}
	})
	return changes
}

// outOfSight reports whether path is, or lies below, a place that cannot be looked at: nobody knows what has become of it.
func outOfSight(errors []EntryError, path string) bool {
	return slices.ContainsFunc(errors, func(e EntryError) bool {
		below, ok := strings.CutPrefix(path, e.Path)
		return ok && (below == "" || os.IsPathSeparator(below[0]))
	})
}

type key struct {
	kind Kind
	path string
}

func keyOf(e *Entry) key { return key{e.Kind, e.Path} }

func changeOf(now time.Time, event string, was, e *Entry) Change {
	c := Change{
		Time: now, Event: event, Kind: e.Kind, Root: e.Root, Path: e.Path, ID: e.ID,
		To: e.Verdict.State, Cause: e.Verdict.Cause, Sentence: e.Verdict.Sentence, Holder: e.Holder(), PID: e.PID(),
		Entry: e,
	}
	if was != nil {
		c.From = was.Verdict.State
	}
	return c
}

// eventOf names what happened to an entry; empty: nothing.
func eventOf(was, is *Entry) string {
	switch {
	case was == nil:
		return Appeared
	case taken(was, is):
		return Taken
	case !sameJudgement(was, is, false):
		return Changed
	case !sameContent(was, is):
		return Renewed
	default:
		return ""
	}
}

// taken reports whether somebody holds it now who did not before. What could not be read before may have been
// the same holder's.
func taken(was, is *Entry) bool {
	a, b := was.Holder(), is.Holder()
	switch {
	case b == nil:
		return false
	case a == nil:
		return was.Verdict.State == verdict.Free
	default:
		return !sameHolder(a, b)
	}
}

// sameHolder reports whether two records are of one hold: by their nonces, or by all else where there are none.
func sameHolder(a, b *verdict.Holder) bool {
	switch {
	case a.ClaimID != b.ClaimID || a.WriterEpoch != b.WriterEpoch:
		return false
	case b.ClaimID != "" || b.WriterEpoch != "":
		return true
	default:
		return a.PID == b.PID && a.Host == b.Host && a.OwnerBootID == b.OwnerBootID && a.BlockID == b.BlockID &&
			a.Acquired.Equal(b.Acquired)
	}
}

// sameJudgement reports whether two looks at an entry say the same of it, the words of its sentence aside. With
// times, also that it clears at the same time: a beat alone moves that.
func sameJudgement(a, b *Entry, times bool) bool {
	v, w := &a.Verdict, &b.Verdict
	return v.State == w.State && v.Cause == w.Cause && v.Flags == w.Flags && v.Stuck == w.Stuck &&
		v.Claimable.When == w.Claimable.When && v.Claimable.By == w.Claimable.By &&
		(!times || near(v.Claimable.At, w.Claimable.At)) &&
		a.Epoch == b.Epoch && a.LockOf == b.LockOf && sameToken(a.Token, b.Token)
}

// near reports whether two times mean the same moment: what is reckoned from the boot-time clock, or from when a
// file was first seen, comes out a little different at every look.
func near(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() < 250*time.Millisecond
}

func sameToken(a, b *verdict.Token) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Path == b.Path && a.State == b.State && a.PID == b.PID && a.Host == b.Host &&
		a.Created.Equal(b.Created) && near(a.Clears, b.Clears)
}

// sameWaiters reports whether the same processes wait, in the same way. It is no part of a judgement: a screen shows
// who waits, and a line for each that comes and goes would drown what matters.
func sameWaiters(a, b *Entry) bool { return a.Hidden == b.Hidden && slices.Equal(a.Waiters, b.Waiters) }

func sameContent(a, b *Entry) bool {
	return bytes.Equal(a.Raw, b.Raw) && (a.Raw == nil) == (b.Raw == nil)
}

func sameErrors(a, b []EntryError) bool {
	return slices.EqualFunc(a, b, func(x, y EntryError) bool { return x.Path == y.Path && x.Err.Error() == y.Err.Error() })
}

// same reports whether b says nothing that a did not say: content, judgement, who waits, errors and how roots are
// watched.
func same(a, b *Snapshot) bool {
	return slices.Equal(a.Roots, b.Roots) && sameErrors(a.Errors, b.Errors) &&
		slices.EqualFunc(a.Entries, b.Entries, sameEntry)
}

// sameEntry reports whether two looks at one entry say the same.
func sameEntry(a, b *Entry) bool {
	return a == b || keyOf(a) == keyOf(b) && a.Root == b.Root && a.Name == b.Name && a.Unseen.Equal(b.Unseen) &&
		sameContent(a, b) && sameJudgement(a, b, true) && sameWaiters(a, b)
}

func goneSentence(e *Entry) string {
	switch e.Kind {
	case Lease:
		return "Its files are gone."
	case Lock:
		if e.Verdict.State == verdict.Free {
			return "Nobody waits for it or clears it any more."
		}
		return "Its file is gone: released, or taken away."
	default:
		return "Its file is gone."
	}
}

func diffRoots(older, newer *Snapshot) []Change {
	before := make(map[string]Root, len(older.Roots))
	for _, r := range older.Roots {
		before[r.Path] = r
	}
	var changes []Change
	for _, r := range newer.Roots {
		was, ok := before[r.Path]
		delete(before, r.Path)
		if ok && was != r {
			changes = append(changes, Change{
				Time: newer.Time, Event: Watch, Root: r.Path, Path: r.Path, Sentence: rootSentence(was, r),
			})
		}
	}
	return changes
}

func rootSentence(was, r Root) string {
	const missing, file = "missing", "file"
	reason := ""
	if r.Reason != "" {
		reason = ": " + r.Reason
	}
	switch {
	case r.Kind == missing:
		return "This root is missing" + reason + ". It is waited for."
	case was.Kind == missing:
		return fmt.Sprintf("This root is there now (%s), watched by %s%s.", r.Kind, r.Watch, reason)
	case was.place != r.place && r.Kind != file && was.Kind != file:
		return fmt.Sprintf("Another directory is in this root's place now (%s), watched by %s%s.", r.Kind, r.Watch, reason)
	case was.Watch != r.Watch || was.Reason != r.Reason:
		return fmt.Sprintf("This root is watched by %s%s.", r.Watch, reason)
	case was.Kind != r.Kind:
		return fmt.Sprintf("This root is %s now.", r.Kind)
	default:
		return fmt.Sprintf("This root lies on %s now.", r.FS)
	}
}

func diffErrors(older, newer *Snapshot) []Change {
	before := make(map[string]string, len(older.Errors))
	for _, e := range older.Errors {
		before[e.Path] = e.Err.Error()
	}
	var changes []Change
	add := func(path, sentence string) {
		changes = append(changes, Change{Time: newer.Time, Event: Watch, Path: path, Sentence: sentence})
	}
	for _, e := range newer.Errors {
		if was, ok := before[e.Path]; !ok || was != e.Err.Error() {
			add(e.Path, "Cannot be looked at: "+e.Err.Error()+".")
		}
		delete(before, e.Path)
	}
	for _, e := range older.Errors {
		if _, ok := before[e.Path]; ok && !outOfSight(newer.Errors, e.Path) {
			add(e.Path, "Can be looked at again.")
		}
	}
	return changes
}
