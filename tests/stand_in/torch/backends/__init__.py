class cpu:
    @staticmethod
    def get_cpu_capability():
        return "plain"
