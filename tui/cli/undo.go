package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// What `break --undo --json` prints, one line.
type jsonUndo struct {
	Schema   int         `json:"schema"`
	Action   string      `json:"action"` // undo
	Path     string      `json:"path"`
	PathB64  string      `json:"path_b64,omitempty"`
	ID       string      `json:"id,omitempty"`
	Broken   audit.Entry `json:"broken"` // the entry of the audit log that is undone
	AuditLog string      `json:"audit_log,omitempty"`
	Done     bool        `json:"done"`
	Refused  string      `json:"refused,omitempty"`
}

// putBack undoes the last break of a lease or lock that the audit log tells of.
func (b *breaking) putBack(ctx context.Context, arg string) error {
	t, err := b.target(ctx, arg)
	if err != nil {
		return err
	}
	if t.kind != watch.Lease && t.kind != watch.Lock {
		return usage("--undo puts back leases and locks; %s is a %s, which stays removed", t.path, t.kind)
	}
	broken, ok, err := b.log.LastAct(t.path)
	if err != nil {
		return failed(fmt.Errorf("the audit log cannot be read: %w", err))
	}
	if !ok {
		file, _ := b.log.File() // it was read
		return &problem{
			code: codeFailed, err: fmt.Errorf("there is nothing to put back: the audit log tells of no break of %s", &t),
			hint: "The log is " + file + "; `holdfast log` prints it.",
		}
	}
	if broken.Action == audit.ActionUndo {
		return b.alreadyBack(&t, &broken)
	}
	if !b.json {
		if err := b.print(func(w io.Writer) { b.tellUndo(w, &t, &broken, time.Now()) }); err != nil {
			return err
		}
	}
	says, done := "nothing was written (--dry-run)", false
	if !b.dryRun {
		if b.readOnly {
			return refused("break --undo", t.String())
		}
		if err := b.restore(ctx, &t, broken); err != nil {
			p := b.inTime(ctx, b.undoRefusal(&t, &broken, err))
			if b.json {
				j := b.encodeUndo(&t, &broken)
				j.Refused = p.Error()
				_ = b.print(func(w io.Writer) { writeJSON(w, j) }) // the exit code tells it to whoever does not read
			}
			return p
		}
		says, done = "put back "+t.String(), true
	}
	return b.print(func(w io.Writer) {
		if b.json {
			j := b.encodeUndo(&t, &broken)
			j.Done = done
			writeJSON(w, j)
			return
		}
		fmt.Fprintln(w, b.style().Safe(says))
	})
}

func (b *breaking) restore(ctx context.Context, t *target, broken audit.Entry) error {
	reason := b.reason
	if t.kind == watch.Lease {
		return b.sight().store(filepath.Dir(t.path)).Restore(ctx, broken, lease.Removal{Reason: reason, Log: b.log})
	}
	return b.sight().locker.Restore(ctx, broken, fslock.Removal{Reason: reason, Log: b.log})
}

func (b *breaking) alreadyBack(t *target, undo *audit.Entry) *problem {
	return &problem{
		code: codeLost, err: fmt.Errorf("there is nothing to put back: %s was already put back, %s, by %s", t, ago(undo.Time, time.Now()), who(undo.Who)),
		hint: "Only the last break is undone, and once; `holdfast log` tells of all.",
	}
}

// undoRefusal says why nothing was put back: what is there now stays.
func (b *breaking) undoRefusal(t *target, broken *audit.Entry, err error) *problem {
	p := b.breakRefusal(err)
	state := verdict.Free
	if e, ok := errors.AsType[*lease.ConflictError](err); ok && !sectionBlocked(err) {
		state = e.Verdict.State
	} else if e, ok := errors.AsType[*fslock.ConflictError](err); ok && errors.Is(err, fslock.ErrHeld) {
		state = e.Verdict.State
		p.err = b.inWords(stands(t, state)+": "+e.Verdict.Sentence, e.Holder, err)
	} else if errors.Is(err, fs.ErrInvalid) {
		p.err = &refusal{fmt.Sprintf("%s is not put back: the audit log's entry does not have its bytes", t), err}
	} else {
		return p
	}
	// Another undo may have been quicker: then it is not in the way, but done.
	if last, ok, lerr := b.log.LastAct(t.path); lerr == nil && ok && last.Action == audit.ActionUndo && !last.Time.Before(broken.Time) &&
		last.Who.PID != os.Getpid() {
		return b.alreadyBack(t, &last)
	}
	p.code, p.hint = codeLost, "Nothing was written."
	if holds(state) {
		p.code, p.hint = codeHeld, "Nothing was written: whoever has it keeps it."
	}
	return p
}

// stands says what is in the way of a lock that is to be put back.
func stands(t *target, state verdict.State) string {
	_, err := os.Lstat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s is not put back, for its holder is alive", t)
	case holds(state):
		return fmt.Sprintf("%s is not put back, for it is held again", t)
	default:
		return fmt.Sprintf("%s is not put back, for something else has its name by now", t)
	}
}

// holds reports whether somebody has what is in that state, as far as can be told.
func holds(state verdict.State) bool {
	switch state {
	case verdict.Live, verdict.Late, verdict.Stopped, verdict.Remote, verdict.Unknown:
		return true
	default:
		return false
	}
}

func (b *breaking) encodeUndo(t *target, broken *audit.Entry) jsonUndo {
	j := jsonUndo{Schema: schema, Action: audit.ActionUndo, Path: t.path, PathB64: inexact(t.path), ID: t.id, Broken: *broken}
	j.AuditLog, _ = b.log.File() // it was read
	return j
}

func (b *breaking) tellUndo(w io.Writer, t *target, broken *audit.Entry, now time.Time) {
	st := b.style()
	fmt.Fprintf(w, "plan: put back %s\n", st.Safe(t.String()))
	b.line(w, "broken", "%s, by %s", ago(broken.Time, now), short(st, who(broken.Who)))
	if broken.Reason != "" {
		b.line(w, "because", "%s", short(st, broken.Reason))
	}
	if h := holderIn(t, broken.Before); h != nil {
		b.line(w, "holder", "%s", shortener(st, h).Replace(b.holder(h, now)))
		b.line(w, "nonce", "%s", orWord(h.ClaimID+h.WriterEpoch, "none: an older build wrote it"))
	}
	if t.kind == watch.Lease {
		b.line(w, "compared", "that nobody has it, and its epoch counter: one that went on belongs to another owner")
	} else {
		b.line(w, "compared", "that nobody has it, and that the holder which it names is not alive")
	}
	b.line(w, "written", "%s, as it was: %d bytes", t.path, len(broken.Before))
	if file, err := b.log.File(); err == nil {
		b.line(w, "first", "a line in %s", file)
	}
}

// holderIn is whom a record names that is not on disk any more; nil: it names nobody.
func holderIn(t *target, data []byte) *verdict.Holder {
	if t.kind == watch.Lease {
		if r, err := record.DecodeLease(t.path, data); err == nil {
			return (&verdict.LeaseFacts{Record: &r}).Holder()
		}
		return nil
	}
	if r, err := record.DecodeLock(t.path, data); err == nil {
		return (&verdict.LockFacts{Record: &r}).Holder()
	}
	return nil
}
