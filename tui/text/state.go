package text

import (
	"fmt"
	"strings"
	"time"

	"holdfast/fslock/verdict"
)

// states holds how each state is shown, in the order of verdict's constants. The symbols are one cell wide in
// every locale (East-Asian Neutral), and no two are the same in either alphabet. The colour is one of the terminal's
// own sixteen, as SGR counts them.
var states = [...]struct{ symbol, ascii, colour string }{
	verdict.Unknown:    {"?", "?", "35"},
	verdict.Unreadable: {"⊘", "#", "35"},
	verdict.Dead:       {"✗", "x", "1;31"},
	verdict.Expired:    {"!", "!", "31"},
	verdict.Stopped:    {"⊜", "=", "33"},
	verdict.Late:       {"↻", "~", "33"},
	verdict.Remote:     {"@", "@", "36"},
	verdict.Live:       {"✓", "+", "32"},
	verdict.Free:       {"-", "-", "2"},
	verdict.Alive:      {"⊚", "o", "32"},
	verdict.Malformed:  {"⊠", "%", "35"},
	verdict.InUse:      {"⊡", "u", "2"},
	verdict.Litter:     {"⊟", "_", "2"},
}

// Word returns the state as tables write it: "LIVE", "IN-USE". A state that does not exist is "UNKNOWN".
func Word(s verdict.State) string { return strings.ToUpper(known(s).String()) }

// Symbol returns the one-cell symbol of the state. A state that does not exist has that of unknown.
func (st Style) Symbol(s verdict.State) string {
	if st.ASCII {
		return states[known(s)].ascii
	}
	return states[known(s)].symbol
}

// State returns the symbol and the word of the state: "✓ LIVE".
func (st Style) State(s verdict.State) string { return st.Symbol(s) + " " + Word(s) }

// Colour returns safe text in the colour of the state.
func Colour(s verdict.State, words string) string {
	return "\x1b[" + states[known(s)].colour + "m" + words + "\x1b[0m"
}

func known(s verdict.State) verdict.State {
	if int(s) < len(states) {
		return s
	}
	return verdict.Unknown
}

// Marks returns what follows a name for its flags, separated by spaces: "*" mine, "⊞" blocked (in ASCII the
// word), "clock", "held 2h", "legacy", "epoch", "stopped". It is "" without flags. held is how long a
// long-held lock has been held; zero leaves the time out.
func (st Style) Marks(flags verdict.Flag, held time.Duration) string {
	names := flags.Strings()
	for i, name := range names {
		switch {
		case name == "mine":
			names[i] = "*"
		case name == "blocked" && !st.ASCII:
			names[i] = "⊞"
		case name == "long-held" && held > 0:
			names[i] = "held " + Age(held)
		case name == "long-held":
			names[i] = "held"
		}
	}
	return strings.Join(names, " ")
}

// Clears says in one clause when the next one can have it, for details: "in 13s at the earliest, at 14:02:42, if
// nothing is renewed". It is "" for what nobody can have, and not made safe.
func Clears(v verdict.Verdict, now time.Time) string {
	c := v.Claimable
	in := Long(c.At.Sub(now) + time.Second - 1) // rounded up, as Signed does
	switch {
	case c.When == verdict.Blocked && c.By == "":
		return ""
	case c.When == verdict.Blocked && c.At.After(now):
		return fmt.Sprintf("in %s; till then blocked by %s", in, c.By)
	case c.When == verdict.Blocked:
		return "only when somebody acts: blocked by " + c.By
	case c.When == verdict.At:
		return fmt.Sprintf("in %s at the earliest, at %s, if nothing is renewed", in, c.At.Local().Format(time.TimeOnly))
	case c.When == verdict.Event && v.State == verdict.Stopped:
		return "when its holder goes on and releases it, or dies"
	case c.When == verdict.Event:
		return "when its holder releases it or dies"
	case v.State == verdict.Free:
		return "now: nobody holds it"
	default:
		return "now: whoever comes next takes it"
	}
}
