package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// notLookedAt is the verdict on facts that nobody gathered: whoever forgot to look must not take it.
func notLookedAt() Verdict {
	return Verdict{
		Sentence:  "It was not looked at.",
		Evidence:  []proc.Check{{Name: "file", Skipped: "it was not looked at"}},
		Claimable: Claimable{When: Blocked, By: "nobody having looked at it"},
		Flags:     IsBlocked,
		Stuck:     true,
	}
}

func unreadableSentence(e *record.Error) string {
	switch {
	case e.Problem == record.Malformed && e.Torn && e.Offset == 0:
		return "Empty: no record in it."
	case e.Problem == record.Malformed && e.Torn:
		return fmt.Sprintf("Torn at byte %d.", e.Offset)
	case e.Problem == record.Malformed:
		return fmt.Sprintf("No record: %s at byte %d.", e.Detail, e.Offset)
	case e.Problem == record.NotRegular:
		return upper(e.Detail) + " is in its place."
	case e.Problem == record.TooLarge:
		return fmt.Sprintf("Over %d KiB: not read.", record.MaxSize>>10)
	default:
		return "Cannot be read: " + e.Detail + "."
	}
}

// inPlace names what stands where a record should be.
func inPlace(e *record.Error) string {
	switch e.Problem {
	case record.TooLarge:
		return fmt.Sprintf("a file of over %d KiB in its place", record.MaxSize>>10)
	case record.Denied:
		return "its file, which cannot be read (" + e.Detail + ")"
	default:
		return e.Detail + " in its place"
	}
}

func upper(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

func deathSentence(f proc.Finding, pid uint32) string {
	switch f.Cause {
	case proc.Recycled:
		s := fmt.Sprintf("Holder is gone: pid %d is now another process", pid)
		if o := f.Occupant; o.PID != 0 {
			s += " (" + o.Name
			if !o.Started.IsZero() {
				s += ", started " + o.Started.Local().Format(time.TimeOnly)
			}
			s += ")"
		}
		return s + "."
	case proc.Reboot:
		return fmt.Sprintf("Holder is gone: this machine was booted after pid %d was last heard of.", pid)
	case proc.Zombie:
		s := fmt.Sprintf("Holder is gone: pid %d has exited and is a zombie", f.PID)
		if f.Parent.PID != 0 {
			s += fmt.Sprintf(" that its parent, pid %d (%s), has not reaped", f.Parent.PID, f.Parent.Name)
		}
		return s + "."
	default:
		return fmt.Sprintf("Holder is gone: no process %d.", pid)
	}
}

func holderName(recorded uint32, f proc.Finding) string {
	if f.PID != 0 && f.PID != int(recorded) {
		return fmt.Sprintf("pid %d (%d in its own namespace)", f.PID, recorded)
	}
	return "pid " + strconv.FormatUint(uint64(recorded), 10)
}

func hostName(host string) string {
	if host == "" {
		return "another machine"
	}
	return host
}

func why(f proc.Finding) string {
	if f.Why == "" {
		return "it cannot be proven"
	}
	return f.Why
}

func conditionWord(c proc.Condition) string {
	return [...]string{"running", "stopped", "traced", "frozen"}[c]
}

// contHint tells how a stopped holder goes on; a traced or frozen one is not helped by a signal.
func contHint(f proc.Finding) string {
	switch f.Condition {
	case proc.Stopped:
		return fmt.Sprintf(" `%s` lets it go on.", contCommand(f.PID))
	case proc.Traced:
		return " Its debugger decides when it goes on."
	case proc.Frozen:
		return " Thawing its control group lets it go on."
	default:
		return ""
	}
}

func contNext(f proc.Finding) []string {
	if f.Condition != proc.Stopped {
		return nil
	}
	return []string{contCommand(f.PID)}
}

func contCommand(pid int) string { return fmt.Sprintf("kill -CONT %d", pid) }

// seenChecks is the evidence that every kind of entry has: what was found at the path, and the process.
func seenChecks(s *Seen, now time.Time) []proc.Check {
	file := proc.Check{Name: "file"}
	switch {
	case s.Problem != nil:
		file.Saw = s.Problem.Detail
		if s.Problem.Problem == record.Malformed {
			file.Saw = fmt.Sprintf("no record: %s at byte %d", s.Problem.Detail, s.Problem.Offset)
		}
		if !s.File.ModTime.IsZero() {
			file.Saw += fmt.Sprintf("; last written %s ago", ago(Age(s.File.ModTime, now)))
		}
		return []proc.Check{file, {Name: "pid", Skipped: "no record names a process"}}
	case s.Missing:
		file.Saw = "not there"
		return []proc.Check{file, {Name: "pid", Skipped: "no record names a process"}}
	}
	file.Saw = fmt.Sprintf("a record, last written %s ago", ago(Age(s.File.ModTime, now)))
	if !s.Still.IsZero() && s.Look.Sub(s.Still) >= time.Second {
		file.Saw += fmt.Sprintf("; watched unchanged for %s", ago(s.Look.Sub(s.Still)))
	}
	checks := append([]proc.Check{file}, s.Proc.Checks...)
	return checks
}

// Quote makes a word safe to paste into a shell, in ASCII whatever is in it: so it survives every locale and whatever
// makes text harmless for a terminal. Words with control characters, or bytes that are not ASCII, want a shell
// that knows $'...', such as bash, zsh or ksh. No argument of a command has a NUL: quoted it is of no use.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 && s[0] != '-' {
		return s
	}
	odd := func(b byte) bool { return b < ' ' || b > '~' }
	if !slices.ContainsFunc([]byte(s), odd) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	q := []byte("$'")
	for _, b := range []byte(s) {
		if odd(b) || b == '\'' || b == '\\' {
			q = fmt.Appendf(q, `\x%02x`, b) // exactly two digits are taken, whatever follows
		} else {
			q = append(q, b)
		}
	}
	return string(append(q, '\''))
}

// Command is the command line that calls a verb of holdfast for arg, ready to be pasted into a shell. The options are as
// they are written there, quoted where they need it.
func Command(verb, arg string, options ...string) string {
	words := append([]string{"holdfast", verb}, options...)
	if strings.HasPrefix(arg, "-") {
		words = append(words, "--") // quoted or not, the verb would take it for an option
		return strings.Join(append(words, Quote(arg)), " ")
	}
	return strings.Join(slices.Insert(words, 2, Quote(arg)), " ")
}

// With is a command line of Command with one more option.
func With(command, option string) string {
	for _, arg := range [...]string{" -- '-", " -- $'-"} { // within a quoted word neither can be
		if i := strings.LastIndex(command, arg); i >= 0 {
			return command[:i] + " " + option + command[i:]
		}
	}
	return command + " " + option
}
