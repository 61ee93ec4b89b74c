package lease

import (
	"bytes"
	"context"
	"time"

	"holdfast/fslock/verdict"
)

// observeEvery is the time between two looks of Observe: over 2 s nothing would count as watched.
const observeEvery = time.Second

// Observe looks at one lease every second and returns the last look: when it was watched unchanged for more than d,
// when its file changed, came or went, when the next claimant can have it, or when ctx ends, which is no error here.
// It is for a program that looks only once and would believe a stamp in the future for ever: after a TTL of this the
// store knows better, for the next 2 s. After a gap of over 2 s between two looks (the machine was busy) d begins
// anew, so that only ctx bounds the call. It writes nothing and takes no lock. Errors are those of Inspect.
func (s *Store) Observe(ctx context.Context, id string, d time.Duration) (Info, error) {
	first, err := s.Inspect(id)
	if err != nil {
		return Info{}, err
	}
	since := first.Facts.Look
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last := first; ; {
		watched := last.Facts.Look.Sub(since)
		if watched > d || last.Verdict.Claimable.When == verdict.Now {
			return last, nil
		}
		timer.Reset(min(observeEvery, d-watched+time.Millisecond))
		select {
		case <-ctx.Done():
			return last, nil
		case <-timer.C:
		}
		if last, err = s.Inspect(id); err != nil {
			return Info{}, err
		}
		if !last.unchangedFrom(&first) {
			return last, nil
		}
		if still := last.Facts.Still; still.After(since) {
			since = still
		}
	}
}

// unchangedFrom reports whether two looks saw the same file.
func (i *Info) unchangedFrom(before *Info) bool {
	a, b := i.Facts, before.Facts
	return a.Missing == b.Missing && a.File == b.File && bytes.Equal(i.Raw, before.Raw)
}
