package roundtrip

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// verdict is what a type alone tells about its values in JSON.
type verdict struct {
	err  error // no value comes back
	each bool  // some values may not come back, although another one has
}

func judge(t reflect.Type) *verdict {
	if t.Kind() == reflect.Interface && t.NumMethod() > 0 {
		return &verdict{err: fmt.Errorf("a result of the interface type %v cannot be decoded from JSON: use a struct, or set another Codec", t)}
	}
	w := walk{seen: map[visit]bool{}}
	err := w.value(t, place{t.String(), false, false})
	return &verdict{err, w.each}
}

// walk visits the types that values of a type contain, as encoding/json does.
type walk struct {
	verdict
	seen map[visit]bool
}

type visit struct {
	reflect.Type
	addressable, optional bool
}

// place is where a value is. If it is optional, it may be absent from all values: it is behind a
// pointer that may be nil.
type place struct {
	path                  string
	addressable, optional bool
}

// found returns an error, unless values without the place come back.
func (w *walk) found(at place, format string, args ...any) error {
	if at.optional {
		w.each = true
		return nil
	}
	return fmt.Errorf("codec json does not store the field "+at.path+", "+format+": "+remedy, args...)
}

func (w *walk) value(t reflect.Type, at place) error {
	v := visit{t, at.addressable, at.optional}
	if t.Kind() == reflect.Interface {
		w.each = w.each || t.NumMethod() > 0 // it decodes only if it is nil
		return nil
	}
	if w.seen[v] || marshals(t, at.addressable) || synchronizes(t) {
		return nil
	}
	w.seen[v] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return w.value(t.Elem(), place{at.path, true, at.optional})
	case reflect.Array:
		return w.value(t.Elem(), at)
	case reflect.Map:
		return w.value(t.Elem(), place{at.path, false, at.optional})
	case reflect.Struct:
		return w.fields(t, at, map[string]bool{}, nil)
	case reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return w.found(at, "a %v", t.Kind())
	default:
		return nil
	}
}

// fields visits the fields of t. names has the names that JSON uses for them and for those of the
// struct that t is embedded in. JSON stores at most one field of a name: one of t before one of a
// struct that is embedded in t.
func (w *walk) fields(t reflect.Type, at place, names map[string]bool, embedded []reflect.Type) error {
	embedded = append(embedded, t)
	for f := range fieldsOf(t) {
		to := place{at.path + "." + f.Name, at.addressable, at.optional}
		var err error
		switch {
		case f.promoted != nil:
		case f.ignored != "":
			err = w.found(to, "%s", f.ignored)
		case names[f.name]:
			err = w.found(to, "because another field has the name %q", f.name)
		default:
			names[f.name] = true
			to.optional = at.optional || f.omitzero || f.Type.Kind() == reflect.Pointer
			err = w.value(f.Type, to)
		}
		if err != nil {
			return err
		}
	}
	for f := range fieldsOf(t) {
		if f.promoted == nil || slices.Contains(embedded, f.promoted) {
			continue
		}
		pointer := f.Type.Kind() == reflect.Pointer
		w.each = w.each || pointer && !f.IsExported() // does not decode unless it is nil
		if err := w.fields(f.promoted, place{at.path + "." + f.Name, at.addressable || pointer, at.optional || pointer}, names, embedded); err != nil {
			return err
		}
	}
	return nil
}

// field is a field of a struct that has data.
type field struct {
	reflect.StructField
	index    int
	ignored  string       // why JSON ignores it
	promoted reflect.Type // the embedded struct whose fields JSON stores instead
	name     string       // in JSON
	omitzero bool
}

// fieldsOf yields the fields of t by the rules of encoding/json. It omits fields without data.
func fieldsOf(t reflect.Type) func(yield func(field) bool) {
	return func(yield func(field) bool) {
		for i := range t.NumField() {
			f := field{StructField: t.Field(i), index: i}
			if f.Name == "_" || f.Type.Size() == 0 || synchronizes(f.Type) {
				continue
			}
			elem := f.Type
			if f.Anonymous && elem.Kind() == reflect.Pointer {
				elem = elem.Elem()
			}
			tag := f.Tag.Get("json")
			name, options, _ := strings.Cut(tag, ",")
			if strings.ContainsFunc(name, func(c rune) bool {
				return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
			}) {
				name = ""
			}
			structure := f.Anonymous && elem.Kind() == reflect.Struct
			switch {
			case !f.IsExported() && !structure:
				f.ignored = "because it is unexported"
			case tag == "-":
				f.ignored = `because its tag is json:"-"`
			case structure && name == "":
				f.promoted = elem
			}
			f.name, f.omitzero = name, slices.Contains(strings.Split(options, ","), "omitzero")
			if name == "" {
				f.name = f.Name
			}
			if !yield(f) {
				return
			}
		}
	}
}

// synchronizes reports whether t is a type of package sync that is not part of a value.
func synchronizes(t reflect.Type) bool {
	return t.PkgPath() == "sync" && (t.Name() == "Mutex" || t.Name() == "RWMutex" || t.Name() == "Once" || t.Name() == "WaitGroup")
}

// ignoredIn returns the path of a field in v that has a value and that JSON ignores, or "". v has
// been encoded, so it has no cycles.
func ignoredIn(v reflect.Value, path string) string {
	if !v.IsValid() || marshals(v.Type(), v.CanAddr()) {
		return ""
	}
	return ignoredFields(v, path)
}

func ignoredFields(v reflect.Value, path string) (found string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return ignoredIn(v.Elem(), path)
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k < reflect.Array || k == reflect.String {
			return "" // no fields, perhaps many elements
		}
		for i := 0; i < v.Len() && found == ""; i++ {
			found = ignoredIn(v.Index(i), path)
		}
	case reflect.Map:
		for i := v.MapRange(); found == "" && i.Next(); {
			found = ignoredIn(i.Value(), path)
		}
	case reflect.Struct:
		for f := range fieldsOf(v.Type()) {
			is := v.Field(f.index)
			switch at := path + "." + f.Name; {
			case f.ignored != "" && !is.IsZero():
				return at
			case f.ignored != "":
			case f.promoted != nil:
				if is = reflect.Indirect(is); is.IsValid() {
					found = ignoredFields(is, at)
				}
			default:
				found = ignoredIn(is, at)
			}
			if found != "" {
				return found
			}
		}
	default: // no fields
	}
	return found
}
