{{/* What every container of the pod has that touches the dataplane: image, rights, mounts. */}}
{{- define "culvert.container" -}}
{{- $cleans := include "culvert.cleans" . }}
image: {{ include "culvert.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/local/bin/proxy-agent]
{{- if not $cleans }}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  # For commands that are executed in this container, such as `check`.
  - name: CULVERT_PIN_DIR
    value: /host/bpf/culvert
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
securityContext:
  # A user other than root is given no capabilities by container runtimes. Root without the others
  # has the rights named here, and those of the files that root owns.
  runAsUser: 0
  runAsGroup: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    add: {{ include "culvert.capabilities" . }}
  {{- with .Values.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and (.Values.appArmorProfile).type (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
  appArmorProfile:
    {{- toYaml .Values.appArmorProfile | nindent 4 }}
  {{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  - name: bpffs
    mountPath: /host/bpf
    mountPropagation: HostToContainer
  - name: run
    mountPath: /run/culvert
  {{- if not $cleans }}
  - name: config
    mountPath: /etc/culvert
    readOnly: true
  {{- if .Values.hostSettings }}
  # The container's own is read-only. Not at /proc, which runtimes keep to themselves.
  - name: proc-sys-net
    mountPath: /host/proc/sys/net
  {{- end }}
  {{- if include "culvert.hasEbpf" . }}
  # The container's own /sys/fs/cgroup begins at its own cgroup; programs attached there would miss
  # every other pod. The agent finds the root of the hierarchy by its mounts.
  - name: cgroup
    mountPath: /host/cgroup
    readOnly: true
  {{- end }}
  {{- end }}
  {{- if include "culvert.callsIptables" . }}
  # Shared with the iptables of the host.
  - name: xtables-lock
    mountPath: /run/xtables.lock
  {{- end }}
  {{- if not $cleans }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* No more than the mode uses. NET_ADMIN is enough for `cleanup`: whatever is pinned goes with its name. To
wait for connections it looks into maps. */}}
{{- define "culvert.capabilities" -}}
{{- $all := list "NET_ADMIN" }}
{{- if include "culvert.hasEbpf" . }}
{{- $all = concat (list "BPF") $all (list "PERFMON") }}
{{- if .Values.linuxBefore511 }}{{ $all = append $all "SYS_RESOURCE" }}{{ end }}
{{- else if and .Values.cleanupWait (include "culvert.cleans" .) }}
{{- $all = concat (list "BPF") $all }}
{{- end }}
{{- /* iptables-legacy speaks to the kernel through a raw socket. */}}
{{- if include "culvert.callsIptables" . }}{{ $all = append $all "NET_RAW" }}{{ end }}
{{- printf "[%s]" (join ", " $all) }}
{{- end }}

{{- define "culvert.volumes" -}}
{{- $cleans := include "culvert.cleans" . }}
{{- if not $cleans -}}
- name: config
  configMap:
    name: {{ include "culvert.fullname" . | quote }}
{{ end -}}
# In every mode: what an agent in another mode pinned is removed from there.
- name: bpffs
  hostPath:
    path: /sys/fs/bpf
    type: Directory
- name: run
  hostPath:
    path: /run/culvert
    type: DirectoryOrCreate
{{- if include "culvert.hasEbpf" . }}
- name: cgroup
  hostPath:
    path: /sys/fs/cgroup
    type: Directory
{{- end }}
{{- if include "culvert.mountsBpffs" . }}
- name: sys-fs
  hostPath:
    path: /sys/fs
    type: Directory
{{- end }}
{{- if not $cleans }}
{{- if .Values.hostSettings }}
- name: proc-sys-net
  hostPath:
    path: /proc/sys/net
    type: Directory
{{- end }}
{{- end }}
{{- if include "culvert.callsIptables" . }}
- name: xtables-lock
  hostPath:
    path: /run/xtables.lock
    type: FileOrCreate
{{- end }}
{{- if not $cleans }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Said, so that the scheduler knows that they are taken, and a PodMonitor finds its port. */}}
{{- define "culvert.ports" -}}
{{- if or .Values.healthzBindAddress (include "culvert.metricsAreReachable" .) -}}
ports:
  {{- with .Values.healthzBindAddress }}
  - name: healthz
    containerPort: {{ include "culvert.portOf" . }}
    hostPort: {{ include "culvert.portOf" . }}
    protocol: TCP
  {{- end }}
  {{- if include "culvert.metricsAreReachable" . }}
  - name: metrics
    containerPort: {{ include "culvert.portOf" .Values.metricsBindAddress }}
    hostPort: {{ include "culvert.portOf" .Values.metricsBindAddress }}
    protocol: TCP
  {{- end }}
{{- end }}
{{- end }}

{{- define "culvert.probes" -}}
{{- $pages := dict "startupProbe" "/healthz" "livenessProbe" "/livez" "readinessProbe" "/readyz" }}
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" }}
{{- with get $.Values $probe }}
{{- if .enabled }}
{{ $probe }}:
  httpGet:
    {{- $host := include "culvert.hostOf" $.Values.healthzBindAddress }}
    {{- /* Of every other address, kubelet asks the node's first one. */}}
    {{- if not (has $host (list "0.0.0.0" "::")) }}
    host: {{ $host | quote }}
    {{- end }}
    path: {{ get $pages $probe }}
    port: {{ include "culvert.portOf" $.Values.healthzBindAddress }}
  {{- toYaml (omit . "enabled") | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* As the annotation before Kubernetes 1.30 spells it. */}}
{{- define "culvert.appArmorAnnotation" -}}
{{- with .Values.appArmorProfile }}
{{- if eq .type "RuntimeDefault" }}runtime/default{{ else if eq .type "Unconfined" }}unconfined{{ else }}localhost/{{ .localhostProfile }}{{ end }}
{{- end }}
{{- end }}
