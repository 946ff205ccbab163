package operator

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// ParseRate parses a rate such as 20/1s.
func ParseRate(text string) (lockcore.Rate, error) {
	n, per, found := strings.Cut(text, "/")
	count, errN := strconv.Atoi(n)
	d, errPer := time.ParseDuration(per)
	if !found || errN != nil || errPer != nil || count < 1 || d <= 0 {
		return lockcore.Rate{}, fmt.Errorf("rate is %q, must be a number of calls and a time, such as 20/1s", text)
	}
	return lockcore.Rate{N: count, Per: d}, nil
}

// RateText returns a rate in the form of ParseRate, without its Burst.
func RateText(r lockcore.Rate) string { return fmt.Sprintf("%d/%v", r.N, r.Per) }

// Bounds describes what a restriction allows.
func Bounds(r lockcore.Restriction) string {
	var parts []string
	if r.Limit > 0 {
		parts = append(parts, fmt.Sprintf("%d at a time", r.Limit))
	}
	if r.Rate.N > 0 {
		parts = append(parts, fmt.Sprintf("%s with burst %d", RateText(r.Rate), max(r.Rate.Burst, 1)))
	}
	return strings.Join(parts, " and ")
}

// ParkedTask is a parked task in the output of -json.
type ParkedTask struct {
	Deployment string `json:"deployment,omitempty"` // asynqmw.Parking.Deployment
	Queue      string `json:"queue"`
	ID         string `json:"id"`
}

// ParkedTaskOf parses lockcore.Holding.OldestParked. Text of another form becomes the ID.
func ParkedTaskOf(entry string) ParkedTask {
	parts := strings.Split(entry, "/")
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil {
			return ParkedTask{ID: entry}
		}
		parts[i] = text
	}
	if len(parts) != 3 {
		return ParkedTask{ID: entry}
	}
	return ParkedTask{Deployment: parts[0], Queue: parts[1], ID: parts[2]}
}

// String returns the task in one line.
func (p ParkedTask) String() string {
	text := OneLine(p.ID)
	if p.Queue != "" {
		text += ", queue " + OneLine(p.Queue)
	}
	if p.Deployment != "" {
		text += ", deployment " + OneLine(p.Deployment)
	}
	return text
}
