// Prints the field table of the embedded API's protobuf decoder: for each message that can be part of a request body,
// the number, JSON name and type of its fields, read from the struct tags of Kubernetes' published Go types.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	policy "k8s.io/api/policy/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var roots = map[string][]any{
	"v1": {core.Namespace{}, core.Secret{}, core.ConfigMap{}, core.Event{}, core.Node{}, core.Pod{}, core.PersistentVolume{},
		core.PersistentVolumeClaim{}, core.Service{}, core.ServiceAccount{}, core.Binding{}},
	"apps/v1":                {apps.Deployment{}, apps.ReplicaSet{}, apps.DaemonSet{}, apps.StatefulSet{}, apps.ControllerRevision{}},
	"autoscaling/v1":         {autoscaling.Scale{}},
	"batch/v1":               {batch.Job{}},
	"coordination.k8s.io/v1": {coordination.Lease{}},
	"events.k8s.io/v1":       {events.Event{}},
	"policy/v1":              {policy.PodDisruptionBudget{}, policy.Eviction{}},
	"scheduling.k8s.io/v1":   {scheduling.PriorityClass{}},
	"storage.k8s.io/v1":      {storage.StorageClass{}, storage.VolumeAttachment{}, storage.CSINode{}},
	"meta.k8s.io/v1":         {meta.DeleteOptions{}},
}

// Types whose JSON is not an object of their fields.
var special = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}):            "time",
	reflect.TypeOf(meta.MicroTime{}):       "microtime",
	reflect.TypeOf(resource.Quantity{}):    "quantity",
	reflect.TypeOf(intstr.IntOrString{}):   "int-or-string",
	reflect.TypeOf(runtime.RawExtension{}): "raw",
	reflect.TypeOf(meta.FieldsV1{}):        "raw",
}

var messages = map[string][]string{}

func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], "/") + "." + t.Name()
}

func one(t reflect.Type) string {
	if s, ok := special[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return one(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64, reflect.Int:
		return "int"
	case reflect.Float64:
		return "double"
	case reflect.Struct:
		walk(t)
		return name(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "list:" + one(t.Elem())
	case reflect.Map:
		return "map:" + one(t.Elem())
	}
	panic("no rule for " + t.String())
}

func walk(t reflect.Type) {
	if _, done := messages[name(t)]; done {
		return
	}
	messages[name(t)] = nil
	var lines []string
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(tag) < 3 {
			continue
		}
		options := strings.Split(field.Tag.Get("json"), ",")
		json, flag := options[0], "always"
		for _, option := range options[1:] {
			if strings.HasPrefix(option, "omit") && field.Type.Kind() != reflect.Pointer {
				flag = "nonzero"
			}
		}
		if json == "" {
			json, flag = "-", "inline"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s", tag[1], json, one(field.Type), flag))
	}
	messages[name(t)] = lines
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintln(out, "# Made by hack/protobuf-fields. `kind APIVERSION KIND MESSAGE`, then for each message its fields:")
	fmt.Fprintln(out, "# number, name in JSON, type, and whether a zero value is said in JSON.")
	var kinds []string
	for version, objects := range roots {
		for _, object := range objects {
			t := reflect.TypeOf(object)
			walk(t)
			kinds = append(kinds, fmt.Sprintf("kind %s %s %s", version, t.Name(), name(t)))
		}
	}
	sort.Strings(kinds)
	for _, kind := range kinds {
		fmt.Fprintln(out, kind)
	}
	var names []string
	for name := range messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(out, "message %s\n", name)
		for _, line := range messages[name] {
			fmt.Fprintln(out, line)
		}
	}
}
