{{- define "simulated.objects" -}}
apiVersion: v1
kind: ServiceAccount
metadata: {name: simulated, namespace: {{ .Release.Namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: simulated-{{ .Release.Namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: simulated, namespace: {{ .Release.Namespace }}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: simulated, namespace: {{ .Release.Namespace }}}
data:
  operator.py: |
{{ .Files.Get "operator.py" | indent 4 }}
{{- end -}}

{{- /* Of a pod's spec; takes the words after the script's name. */ -}}
{{- define "simulated.pod" -}}
serviceAccountName: simulated
containers:
  - name: simulated
    image: docker.io/library/python:3.13.1
    args: {{ prepend . "/simulated/operator.py" | toJson }}
    env:
      - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
      - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    resources: {requests: {cpu: 10m, memory: 16Mi}}
    volumeMounts: [{name: simulated, mountPath: /simulated, readOnly: true}]
volumes:
  - {name: simulated, configMap: {name: simulated}}
{{- end -}}
