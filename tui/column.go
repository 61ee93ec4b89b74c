package tui

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// Column is a column of a table of entries.
type Column uint8

// The columns, in the order in which they are shown; they are dropped from the end.
const (
	ColState Column = iota
	ColName
	ColBeat
	ColLeft
	ColHolder
	ColPID
	ColKind
	ColHost
	ColAge
	ColEpoch
	columns
)

func (c Column) String() string {
	return [columns]string{"STATE", "NAME", "BEAT", "LEFT", "HOLDER", "PID", "KIND", "HOST", "AGE", "EPOCH"}[c]
}

// width is the cells of each column but the name's, which gets what is left.
func (c Column) width() int {
	return [columns]int{12, 0, 5, 5, 11, 7, 5, 10, 5, 6}[c]
}

// Number reports whether the column stands at the right of its cells.
func (c Column) Number() bool {
	return c == ColBeat || c == ColLeft || c == ColPID || c == ColAge || c == ColEpoch
}

// Cell is what the column says of an entry whose verdict at now is v: safe text; "" for nothing, and for what is not
// known.
func (c Column) Cell(st text.Style, e *watch.Entry, v verdict.Verdict, now time.Time) string {
	switch c {
	case ColState:
		return st.State(v.State)
	case ColName:
		return st.Safe(e.Title())
	case ColBeat:
		if beat := e.Beat(); !beat.IsZero() {
			return text.Age(verdict.Age(beat, now))
		}
	case ColLeft:
		return left(e.Subject, v, now)
	case ColKind:
		return e.Kind.String()
	case ColEpoch:
		if e.Epoch != 0 {
			return strconv.FormatUint(e.Epoch, 10)
		}
	case ColPID:
		if pid := e.PID(); pid != 0 {
			return strconv.Itoa(pid)
		}
	default:
		if h := e.Holder(); h != nil {
			return c.holderCell(st, h, now)
		}
	}
	return ""
}

func (c Column) holderCell(st text.Style, h *verdict.Holder, now time.Time) string {
	switch {
	case c == ColHolder:
		return st.Safe(holderWords(h))
	case c == ColHost:
		return st.Safe(h.Host)
	case c == ColAge && !h.Acquired.IsZero():
		return text.Age(verdict.Age(h.Acquired, now))
	default:
		return ""
	}
}

// holderWords are the holder in two words: a lease's channel and version, else the host. They are not made safe.
func holderWords(h *verdict.Holder) string {
	if h == nil {
		return ""
	}
	return cmp.Or(strings.TrimSpace(h.Channel+" "+h.Version), h.Host)
}

// holderIn is the holder in w cells. The version is left out where it does not fit: what is left of one reads as
// another.
func holderIn(st text.Style, h *verdict.Holder, w int) string {
	if h == nil {
		return ""
	}
	if s := st.Safe(holderWords(h)); text.Width(s) <= w {
		return s
	}
	return st.Safe(cmp.Or(h.Channel, h.Host))
}

// left is how long until a lease or lock can be had if nothing is renewed; of an expired one how long it could be
// had, as a negative time. It is "-" where no time says so, and "" where that is no question.
func left(s verdict.Subject, v verdict.Verdict, now time.Time) string {
	f, held := s.(interface{ Expires() time.Time })
	switch {
	case v.State == verdict.Free && v.Claimable.When == verdict.Blocked:
		return "-"
	case !held, v.State == verdict.Live, v.State == verdict.Free:
		return ""
	case !v.Claimable.At.IsZero():
		return text.Signed(v.Claimable.At.Sub(now))
	case v.Claimable.When != verdict.Now:
		return "-"
	case v.State == verdict.Expired:
		return text.Signed(f.Expires().Sub(now))
	default:
		return "now"
	}
}
