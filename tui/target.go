package tui

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// target is what a plan is about: fixed when the plan is made, whatever the list shows later.
type target struct {
	ref         ref
	id          string // of a lease
	name        string // what it is called; not made safe
	nonce       string // claim id or writer epoch; "": the record has none
	fingerprint string
}

// targetOf fixes an entry as it is at now.
func targetOf(e *watch.Entry, now time.Time) target {
	t, holder := target{ref: refOf(e), id: e.ID, name: e.Title()}, e.Holder()
	if holder != nil {
		t.nonce = cmp.Or(holder.ClaimID, holder.WriterEpoch)
	}
	t.fingerprint = fingerprint(e.Judge(now), holder, e.Epoch, e.Raw)
	return t
}

// isLease reports whether a fresh look shows what the plan was made for.
func (t target) isLease(i lease.Info) bool {
	return fingerprint(i.Verdict, i.Facts.Holder(), i.Epoch, i.Raw) == t.fingerprint
}

func (t target) isLock(i fslock.Info) bool {
	return fingerprint(i.Verdict, i.Facts.Holder(), 0, i.Raw) == t.fingerprint
}

func (t target) isToken(i fslock.TokenInfo) bool {
	return fingerprint(i.Verdict, i.Facts.Holder(), 0, i.Raw) == t.fingerprint
}

// fingerprint is the identity and state of an entry: two are equal when nothing happened but time and beats.
func fingerprint(v verdict.Verdict, h *verdict.Holder, epoch uint64, raw []byte) string {
	who := "nobody"
	switch {
	case h != nil:
		who = fmt.Sprintf("%d %q %q %q %q %q %d", h.PID, h.Host, h.OwnerBootID, h.BlockID, h.ClaimID, h.WriterEpoch,
			h.Acquired.UnixMilli())
	case len(raw) > 0:
		who = fmt.Sprintf("%x", raw)
	}
	return fmt.Sprintf("%v/%v/%v/%d/%s", v.State, v.Cause, v.Claimable.When, epoch, who)
}

// shortName is the least that a person calls an entry: a lease's id, the name that was decoded, or the file's.
func shortName(e *watch.Entry) string {
	return cmp.Or(e.ID, e.Name, filepath.Base(e.Path))
}
