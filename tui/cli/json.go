package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// schema is the version of everything that is printed as JSON. Keys are only ever added.
const schema = 1

// What `ls --json` and `why --json` print. Keys that do not apply are left out.
type (
	jsonLook struct {
		Schema   int          `json:"schema"`
		NowMS    int64        `json:"now_ms"`
		Observer jsonObserver `json:"observer"`
		Roots    []jsonRoot   `json:"roots"`
		Entries  []jsonEntry  `json:"entries"`
		Errors   []jsonError  `json:"errors"`
	}
	jsonObserver struct {
		Host   string `json:"host,omitempty"`
		BootID string `json:"boot_id,omitempty"`
		PIDNS  uint64 `json:"pid_ns,omitempty"`
		UID    int    `json:"uid"`
	}
	jsonRoot struct {
		Path     string `json:"path"`
		Kind     string `json:"kind,omitempty"`
		ChosenBy string `json:"chosen_by,omitempty"`
		FS       string `json:"fs,omitempty"`
		Watch    string `json:"watch,omitempty"`
	}
	jsonEntry struct {
		Kind      string         `json:"kind"`
		Root      string         `json:"root"`
		Path      string         `json:"path"`
		PathB64   string         `json:"path_b64,omitempty"` // the path's bytes, if they are no UTF-8
		ID        string         `json:"id,omitempty"`
		Name      string         `json:"name,omitempty"`
		State     string         `json:"state"`
		Cause     string         `json:"cause,omitempty"`
		Sentence  string         `json:"sentence"`
		Claimable *jsonClaimable `json:"claimable,omitempty"` // leases and locks
		Flags     []string       `json:"flags"`
		Epoch     uint64         `json:"epoch,omitempty"`
		Holder    *jsonHolder    `json:"holder,omitempty"`
		Token     *jsonToken     `json:"token,omitempty"`
		Waiters   []jsonWaiter   `json:"waiters,omitempty"`
		UnseenMS  int64          `json:"unseen_since_ms,omitempty"` // in exports of the screen: nothing of it could be looked at since
		Evidence  []jsonCheck    `json:"evidence"`
		Originals []jsonOriginal `json:"originals,omitempty"` // why only, likewise next
		Next      []string       `json:"next,omitempty"`
	}
	jsonClaimable struct {
		When string `json:"when"`
		AtMS *int64 `json:"at_ms,omitempty"`
		By   string `json:"by,omitempty"`
	}
	jsonHolder struct {
		PID          uint32       `json:"pid"`
		Host         string       `json:"host,omitempty"`
		OwnerBootID  string       `json:"owner_boot_id,omitempty"`
		BlockID      string       `json:"block_id,omitempty"`
		SessionID    *string      `json:"session_id,omitempty"`
		Channel      string       `json:"channel,omitempty"`
		Version      string       `json:"version,omitempty"`
		Epoch        uint64       `json:"epoch,omitempty"`
		ClaimID      string       `json:"claim_id,omitempty"`
		WriterEpoch  string       `json:"writer_epoch,omitempty"`
		AcquiredAtMS *int64       `json:"acquired_at_ms,omitempty"`
		RenewedAtMS  *int64       `json:"renewed_at_ms,omitempty"`
		Process      *jsonProcess `json:"process,omitempty"`
	}
	jsonProcess struct {
		Alive       string `json:"alive"`
		Name        string `json:"name,omitempty"`
		Command     string `json:"command,omitempty"`
		User        string `json:"user,omitempty"`
		Status      string `json:"status,omitempty"`
		StartedAtMS *int64 `json:"started_at_ms,omitempty"`
	}
	jsonToken struct {
		Path        string `json:"path"`
		PathB64     string `json:"path_b64,omitempty"`
		State       string `json:"state"`
		PID         uint32 `json:"pid,omitempty"`
		Host        string `json:"host,omitempty"`
		CreatedAtMS *int64 `json:"created_at_ms,omitempty"`
		ClearsAtMS  *int64 `json:"clears_at_ms,omitempty"`
	}
	jsonWaiter struct {
		PID int    `json:"pid"`
		How string `json:"how"`
	}
	jsonCheck struct {
		Check   string `json:"check"`
		Saw     string `json:"saw,omitempty"`
		Speaks  string `json:"speaks,omitempty"`
		Skipped string `json:"skipped,omitempty"`
	}
	jsonOriginal struct {
		System string `json:"system"`
		Does   string `json:"does"`
		Why    string `json:"why,omitempty"`
	}
	jsonError struct {
		Path    string `json:"path"`
		PathB64 string `json:"path_b64,omitempty"`
		Error   string `json:"error"`
	}
)

// encoder turns entries into what is printed, asking for each living holder's process once.
type encoder struct {
	sessions bool            // session ids let their owner's conversations be read: on request only
	advise   bool            // with originals and next commands
	seen     *watch.Snapshot // where to look for what is advised; with advise
	describe func(pid int) (proc.Details, bool)
	known    map[int]*proc.Details
}

// writeJSON writes v as one line. Text is exact but for bytes that are no UTF-8; what could do something to a terminal,
// or hide in it, is escaped.
func writeJSON(w io.Writer, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // values of the types above always encode
	// An error of w stays in it.
	_, _ = w.Write(escape(b.Bytes()))
}

// escape writes as \u escapes what encoding/json leaves as it is in strings, the only place where it can be: DEL, C1
// controls, and format characters, those that reorder text among them.
func escape(line []byte) []byte {
	if !bytes.ContainsFunc(line, hidden) {
		return line
	}
	out := make([]byte, 0, len(line)+64)
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		switch {
		case !hidden(r):
			out = append(out, line[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		line = line[size:]
	}
	return out
}

func hidden(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r > 0x9f && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

func (e *encoder) look(s *watch.Snapshot, entries []*watch.Entry) jsonLook {
	look := jsonLook{
		Schema: schema, NowMS: s.Time.UnixMilli(),
		Observer: jsonObserver{Host: s.Observer.Host, BootID: s.Observer.BootID, PIDNS: s.Observer.PIDNS, UID: s.Observer.UID},
		Roots:    make([]jsonRoot, 0, len(s.Roots)),
		Entries:  make([]jsonEntry, 0, len(entries)),
		Errors:   make([]jsonError, 0, len(s.Errors)),
	}
	for _, r := range s.Roots {
		look.Roots = append(look.Roots, jsonRoot{Path: r.Path, Kind: r.Kind, ChosenBy: r.ChosenBy, FS: r.FS, Watch: r.Watch})
	}
	for _, entry := range entries {
		look.Entries = append(look.Entries, e.entry(entry))
	}
	for _, bad := range s.Errors {
		look.Errors = append(look.Errors, jsonError{Path: bad.Path, PathB64: inexact(bad.Path), Error: bad.Err.Error()})
	}
	return look
}

func (e *encoder) entry(w *watch.Entry) jsonEntry {
	v := &w.Verdict
	j := jsonEntry{
		Kind: w.Kind.String(), Root: w.Root, Path: w.Path, PathB64: inexact(w.Path), ID: w.ID, Name: w.Name,
		State: v.State.String(), Cause: v.Cause, Sentence: v.Sentence, Flags: v.Flags.Strings(), Epoch: w.Epoch,
		Holder: e.holder(w), Evidence: make([]jsonCheck, 0, len(v.Evidence)),
	}
	if w.Kind == watch.Lease || w.Kind == watch.Lock {
		j.Claimable = claimable(v.Claimable)
	}
	if t := w.Token; t != nil {
		j.Token = &jsonToken{
			Path: t.Path, PathB64: inexact(t.Path), State: t.State.String(), PID: t.PID, Host: t.Host,
			CreatedAtMS: millis(t.Created), ClearsAtMS: millis(t.Clears),
		}
	}
	if !w.Unseen.IsZero() {
		j.UnseenMS = w.Unseen.UnixMilli()
	}
	for _, waiter := range w.Waiters {
		j.Waiters = append(j.Waiters, jsonWaiter{PID: waiter.PID, How: waiter.How})
	}
	for _, c := range v.Evidence {
		check := jsonCheck{Check: c.Name, Saw: c.Saw, Skipped: c.Skipped}
		if c.Skipped == "" {
			check.Speaks = c.Speaks.String()
		}
		j.Evidence = append(j.Evidence, check)
	}
	if e.advise {
		// Where the next commands are told the question why was asked.
		j.Next = slices.DeleteFunc(e.seen.Next(w, v), func(step string) bool { return strings.HasPrefix(step, "holdfast why ") })
		for _, o := range v.Originals {
			j.Originals = append(j.Originals, jsonOriginal(o))
		}
	}
	return j
}

func claimable(c verdict.Claimable) *jsonClaimable {
	return &jsonClaimable{When: c.When.String(), AtMS: millis(c.At), By: c.By}
}

func (e *encoder) holder(w *watch.Entry) *jsonHolder {
	h := w.Holder()
	if h == nil {
		return nil
	}
	j := newHolder(h)
	if e.sessions {
		j.SessionID = h.SessionID
	}
	if seen := w.Seen(); seen != nil {
		j.Process = e.process(&seen.Proc)
	}
	return j
}

// newHolder is what a record says of its holder, but for the session.
func newHolder(h *verdict.Holder) *jsonHolder {
	return &jsonHolder{
		PID: h.PID, Host: h.Host, OwnerBootID: h.OwnerBootID, BlockID: h.BlockID, Channel: h.Channel, Version: h.Version,
		Epoch: h.Epoch, ClaimID: h.ClaimID, WriterEpoch: h.WriterEpoch,
		AcquiredAtMS: millis(h.Acquired), RenewedAtMS: millis(h.Renewed),
	}
}

func (e *encoder) process(f *proc.Finding) *jsonProcess {
	switch f.Answer {
	case proc.Dead:
		return &jsonProcess{Alive: "no"}
	case proc.Alive:
	default:
		return &jsonProcess{Alive: "unknown"}
	}
	p := &jsonProcess{Alive: "yes"}
	d, known := e.known[f.PID]
	if !known {
		if seen, ok := e.describe(f.PID); ok {
			d = &seen
		}
		if e.known == nil {
			e.known = map[int]*proc.Details{}
		}
		e.known[f.PID] = d
	}
	if d != nil {
		p.Name, p.Command, p.User, p.Status, p.StartedAtMS = d.Name, d.Command, d.User, d.Status, millis(d.Started)
	}
	return p
}

// millis is t in milliseconds since the epoch; nil: unknown.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// inexact returns the bytes that JSON text cannot carry, in base 64; "" when it can.
func inexact(s string) string {
	if utf8.ValidString(s) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}
